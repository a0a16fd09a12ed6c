"""The demo's way into somebody's cluster, its short form, and that nothing of it stays there.

The cluster is the embedded one in the way of a foreign one, through its kubeconfig alone. What it
lacks is played: a controller for Deployments, and `kubectl port-forward`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.demo.scenario import Demo
from penstock_cluster.cluster import ClusterOptions
from penstock_cluster.testing import RunningCluster, embedded_cluster
from tests.charts.demo import example, watched
from tests.charts.elsewhere import JOBS_NAMESPACE, Elsewhere, ElsewhereError
from tests.charts.installed import NODES
from tests.charts.rendering import SYSTEM, Json
from tests.controller.real_cluster import KUBECTL, needs_kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
VALUES: Json = {
    "controller": {"replicas": 1},
    "scheduler": {"replicas": 1, "interval": 1},
    "brain": {"config": {"administrator": {"interval_seconds": 2}}},
}
DEPLOYMENTS = "deployments.apps"

PORT_FORWARD = """#!{python}
import json, os, socket, subprocess, sys, threading
if "port-forward" not in sys.argv:
    os.execv("{kubectl}", sys.argv)
get = ["{kubectl}", "get", "pods", "-n", "{system}", "-o", "json"]
selector = "--selector=app.kubernetes.io/component=brain"
[pod] = json.loads(subprocess.check_output([*get, selector]))["items"]
listener = socket.create_server(("127.0.0.1", 0))
print(f"Forwarding from 127.0.0.1:{{listener.getsockname()[1]}} -> 8443", flush=True)

def pipe(one, other):
    while data := one.recv(65536):
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)

while True:
    near, _ = listener.accept()
    far = socket.create_connection((pod["status"]["podIP"], 8443))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pipe, args=pair, daemon=True).start()
"""


@contextlib.contextmanager
def run_deployments(cluster: RunningCluster) -> Iterator[None]:
    """One pod for each Deployment, whose status says whether it is ready."""
    stopping = threading.Event()

    def look() -> None:
        for deployment in cluster.list(DEPLOYMENTS, SYSTEM):
            name = deployment["metadata"]["name"]
            pods = {one["metadata"]["name"]: one for one in cluster.list("pods", SYSTEM)}
            if name not in pods:
                template = deployment["spec"]["template"]
                metadata = {**template["metadata"], "name": name}
                cluster.create("pods", {"metadata": metadata, "spec": template["spec"]}, SYSTEM)
                continue
            conditions = pods[name]["status"].get("conditions") or ()
            ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
            status = {"observedGeneration": deployment["metadata"]["generation"]}
            counts = dict.fromkeys(("replicas", "updatedReplicas"), 1)
            counts |= dict.fromkeys(("readyReplicas", "availableReplicas"), int(ready))
            path = f"{cluster.path(DEPLOYMENTS, SYSTEM, name)}/status"
            patch = {"status": {**status, **counts}}
            kind = "application/merge-patch+json"
            cluster.request("PATCH", path, patch, content_type=kind)

    def work() -> None:
        while not stopping.wait(0.2):
            with contextlib.suppress(AssertionError, OSError):  # the namespace comes and goes
                look()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(20)


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(PORT_FORWARD.format(python=sys.executable, kubectl=KUBECTL, system=SYSTEM))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    with embedded_cluster(ClusterOptions(nodes=NODES, rbac=True)) as cluster:
        yield cluster


@needs_kubectl
def test_a_job_goes_through_and_nothing_stays(theirs: RunningCluster) -> None:
    before = {one["metadata"]["name"] for one in theirs.list("namespaces")}

    async def main() -> None:
        async with Elsewhere(theirs.kubeconfig_path, VALUES, "any:1") as place:
            job = place.example(example("digits/job.yaml"))
            [container] = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
            assert container["image"] == "any:1"
            container["command"][-1] = "--epochs=1"
            job["spec"]["replicaSpecs"]["worker"]["maxReplicas"] = 1
            connection = await place.connection()
            async with watched(connection, await place.brain(), job) as observer:
                demo = Demo(observer, job, 200, lambda _: None, kill_a_worker=False)
                report = await demo.run()
            assert report.job.state == "Succeeded", report
            assert report.audit is not None
            assert (report.audit.samples_lost, report.audit.samples_repeated) == (0, 0)
            assert await place.faults() == []
            assert place.has_gpus

    with run_deployments(theirs):
        asyncio.run(main())
    gone = {one["metadata"]["name"] for one in theirs.list("namespaces")} - before
    assert gone == set()
    kinds = (
        "customresourcedefinitions.apiextensions.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "priorityclasses.scheduling.k8s.io",
    )
    for kind in kinds:
        names = [one["metadata"]["name"] for one in theirs.list(kind)]
        assert [name for name in names if "penstock" in name] == [], kind


@needs_kubectl
def test_one_that_has_penstock_is_left_alone(theirs: RunningCluster) -> None:
    theirs.namespace(JOBS_NAMESPACE)

    async def main() -> None:
        with pytest.raises(ElsewhereError, match=f"namespace {JOBS_NAMESPACE} is there already"):
            async with Elsewhere(theirs.kubeconfig_path, VALUES, "any:1"):
                pass

    asyncio.run(main())
    assert theirs.get("namespaces", JOBS_NAMESPACE)
