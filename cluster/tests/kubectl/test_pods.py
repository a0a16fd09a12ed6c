"""What people type about pods works with the real kubectl, unpatched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from cluster.tests.kubectl.kubectl import Kubectl, needs_kubectl
from penstock_cluster.apiserver import ServeOptions
from penstock_cluster.registry import EngineOptions, LogQuery
from penstock_cluster.testing import RunningCluster, api_server

pytestmark = needs_kubectl

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  labels: {app: x}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: example.org/app:1
"""


class Lines:
    """A log of five lines; a follower gets two of them a moment later."""

    async def read(self, pod: dict[str, Any], query: LogQuery) -> AsyncIterator[bytes]:
        lines = [f"{pod['metadata']['name']} line {number}\n".encode() for number in range(5)]
        if query.tail_lines is not None:
            lines = lines[-query.tail_lines :] if query.tail_lines else []
        for line in lines[:-2]:
            yield line
        if query.follow:
            await asyncio.sleep(0.2)
        for line in lines[-2:]:
            yield line


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server(EngineOptions(rbac=True), ServeOptions(tls=True)) as running:
        running.engine.logs = Lines()
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
        running.create("nodes", {"metadata": {"name": "n1"}})
        status = {"status": {"conditions": [ready], "capacity": {"cpu": "4"}}}
        running.patch("nodes", "n1", status, subresource="status")
        yield running


@pytest.fixture(scope="module")
def kubectl(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(cluster, tmp_path_factory.mktemp("kubectl"))


def start_pod(kubectl: Kubectl, name: str) -> None:
    """Create a pod, bind it and say that it runs, as binder and kubelet would."""
    kubectl.ok("apply", "-f", "-", stdin=POD.replace("NAME", name))
    cluster = kubectl.cluster
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
    cluster.ok("POST", cluster.path("pods", "default", name, "binding"), binding)
    container = {
        "name": "main",
        "ready": True,
        "restartCount": 0,
        "image": "example.org/app:1",
        "imageID": "",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    status = {
        "phase": "Running",
        "podIP": "127.1.2.3",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [container],
    }
    cluster.patch(
        "pods",
        name,
        {"status": status},
        "default",
        "status",
        content_type="application/strategic-merge-patch+json",
    )


def test_get_wide_shows_state_address_and_node(kubectl: Kubectl) -> None:
    start_pod(kubectl, "wide")
    head, row = kubectl.ok("get", "pod", "wide", "-o=wide").splitlines()
    assert head.split()[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    found = row.split()
    assert found[:4] == ["wide", "1/1", "Running", "0"]
    assert found[5:7] == ["127.1.2.3", "n1"]


def test_describe_pod_and_node(kubectl: Kubectl) -> None:
    start_pod(kubectl, "described")
    text = kubectl.ok("describe", "pod", "described")
    assert "Status:           Running" in text or "Status:       Running" in text
    assert "Image:          example.org/app:1" in text
    text = kubectl.ok("describe", "node", "n1")
    assert "Ready" in text
    assert "described" in text.split("Non-terminated Pods:")[1]


def test_logs_are_printed_and_followed(kubectl: Kubectl) -> None:
    start_pod(kubectl, "talks")
    whole = "".join(f"talks line {number}\n" for number in range(5))
    assert kubectl.ok("logs", "talks") == whole
    assert kubectl.ok("logs", "talks", "--tail=2") == "talks line 3\ntalks line 4\n"
    assert kubectl.ok("logs", "-f", "talks") == whole
    assert kubectl.ok("logs", "-l", "app=x", "--tail=1", "-c", "main").count("line 4") >= 1
    ran = kubectl.run("logs", "absent")
    assert ran.code == 1
    assert 'pods "absent" not found' in ran.err


def test_wait_for_ready_and_delete(kubectl: Kubectl) -> None:
    start_pod(kubectl, "ready")
    assert "condition met" in kubectl.ok(
        "wait", "pod/ready", "--for=condition=Ready", "--timeout=5s"
    )
    out = kubectl.ok("delete", "pod", "ready", "--grace-period=0", "--force", "--wait=false")
    assert 'pod "ready" force deleted' in out
    assert kubectl.run("get", "pod", "ready").code == 1


def test_a_bound_pod_that_is_deleted_is_terminating_until_its_kubelet_is_done(
    kubectl: Kubectl,
) -> None:
    start_pod(kubectl, "ending")
    kubectl.ok("delete", "pod", "ending", "--wait=false")
    assert "Terminating" in kubectl.ok("get", "pod", "ending")
    waiting = kubectl.start("wait", "pod/ending", "--for=delete", "--timeout=10s")
    kubectl.cluster.delete("pods", "ending", "default", gracePeriodSeconds="0")
    out, error = waiting.communicate(timeout=15)
    assert waiting.returncode == 0, (out, error)


def test_run_create_and_expose_generate_objects(kubectl: Kubectl) -> None:
    assert kubectl.ok("run", "quick", "--image=example.org/app:1") == "pod/quick created\n"
    assert "configmap/settings created" in kubectl.ok(
        "create", "configmap", "settings", "--from-literal=a=1"
    )
    assert kubectl.ok("get", "cm", "settings", "-o=jsonpath={.data.a}") == "1"
    kubectl.ok("create", "secret", "generic", "keys", "--from-literal=k=v")
    assert kubectl.ok("get", "secret", "keys", "-o=jsonpath={.data.k}") == "dg=="
    kubectl.ok("create", "namespace", "team")
    assert "team" in kubectl.ok("get", "namespaces", "-o=name")


def test_label_annotate_and_select(kubectl: Kubectl) -> None:
    start_pod(kubectl, "marked")
    kubectl.ok("label", "pod", "marked", "tier=gold")
    kubectl.ok("annotate", "pod", "marked", "note=hello")
    assert kubectl.ok("get", "pods", "-l", "tier=gold", "-o=name") == "pod/marked\n"
    kubectl.ok("label", "pod", "marked", "tier-")
    assert kubectl.ok("get", "pods", "-l", "tier=gold", "-o=name") == ""


def test_cordon_and_drain_evict_the_pods_of_a_node(kubectl: Kubectl) -> None:
    start_pod(kubectl, "drained")
    assert "cordoned" in kubectl.ok("cordon", "n1")
    assert "SchedulingDisabled" in kubectl.ok("get", "nodes")
    assert "uncordoned" in kubectl.ok("uncordon", "n1")
    path = kubectl.cluster.path("pods", "default", "drained", "eviction")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "drained", "namespace": "default"},
    }
    kubectl.cluster.ok("POST", path, eviction)
    assert "Terminating" in kubectl.ok("get", "pod", "drained")


def test_auth_answers_what_rbac_decides(kubectl: Kubectl) -> None:
    assert kubectl.ok("auth", "can-i", "create", "pods") == "yes\n"
    ran = kubectl.run("auth", "can-i", "create", "pods", "--as=somebody")
    assert (ran.code, ran.out) == (1, "no\n")
    kubectl.ok("create", "role", "reader", "--verb=get,list", "--resource=pods")
    kubectl.ok("create", "rolebinding", "reader", "--role=reader", "--user=somebody")
    assert kubectl.ok("auth", "can-i", "list", "pods", "--as=somebody") == "yes\n"
    listing = kubectl.ok("auth", "can-i", "--list", "--as=somebody")
    assert "pods" in listing
    assert "system:masters" in kubectl.ok("auth", "whoami")
