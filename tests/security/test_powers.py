"""What somebody can do who has taken over a component: what the page on security says, and no less.

Each of these is a right that the component's work needs; a page that left them out would have
people guard the wrong things.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.base.enums import Role
from penstock.controller.reconcile.desired.pods import replica_pod
from penstock.controller.reconcile.desired.targets import RankTarget
from penstock.controller.reconcile.model.observed import Job
from penstock.crds.elasticjob import ElasticJobSpec
from penstock_cluster.registry.engine import EngineOptions
from penstock_cluster.testing import RunningCluster, api_server
from tests.charts.rendering import SYSTEM, render

RBAC = "rbac.authorization.k8s.io"
JOBS, SCALES = "elasticjobs.penstock.dev", "scales.penstock.dev"
GROUPS = (RBAC, "apiextensions.k8s.io", "admissionregistration.k8s.io")
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
ANYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
CONTAINER = {"name": "main", "image": "harmless:1"}
OWNER = {"kind": "ServiceAccount", "name": "owner", "namespace": "victim"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """The chart's roles and policies, and a namespace in which an account owns the cluster."""
    with api_server(EngineOptions(rbac=True)) as running:
        for name in (SYSTEM, "victim"):
            running.namespace(name)
        for one in render({}):
            if one["apiVersion"].partition("/")[0] in GROUPS or one["kind"] == "ServiceAccount":
                running.apply(one)
        running.create("serviceaccounts", {"metadata": {"name": "owner"}}, "victim")
        binding = {
            "metadata": {"name": "owner"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [OWNER],
        }
        running.create(f"clusterrolebindings.{RBAC}", binding)
        secret = {"metadata": {"name": "of-somebody"}, "stringData": {"word": "hidden"}}
        running.create("secrets", secret, "victim")
        pod = {"metadata": {"name": "running"}, "spec": {"containers": [CONTAINER]}}
        running.create("pods", pod, "victim")
        job = {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": "job"},
            "spec": {
                "strategy": "AllReduce",
                "replicaSpecs": {"worker": {"template": {"spec": {"containers": [CONTAINER]}}}},
            },
        }
        running.create(JOBS, job, "victim")
        yield running


class Thief:
    """Somebody with the token of a component."""

    def __init__(self, cluster: RunningCluster, component: str) -> None:
        self.cluster = cluster
        self.token = cluster.account_token(SYSTEM, f"penstock-{component}")

    def send(self, method: str, resource: str, *parts: str, body: Any = None) -> int:
        """The status of a request about something in the victim's namespace."""
        path = self.cluster.path(resource, "victim", *parts)
        patch = STRATEGIC if resource == "pods" else MERGE
        kind = patch if method == "PATCH" else "application/json"
        return self.cluster.request(method, path, body, content_type=kind, token=self.token).status


def any_pod(name: str) -> dict[str, Any]:
    container = {**CONTAINER, "securityContext": {"privileged": True}}
    spec = {"serviceAccountName": "owner", "hostPID": True, "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


def another_image() -> dict[str, Any]:
    return {"spec": {"containers": [{**CONTAINER, "image": "harmful:1"}]}}


def a_scale(cluster: RunningCluster, name: str) -> dict[str, Any]:
    uid = cluster.get(JOBS, "job", "victim")["metadata"]["uid"]
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Scale",
        "metadata": {"name": name},
        "spec": {
            "jobRef": {"name": "job", "uid": uid},
            "roles": {"worker": {"replicas": 2}},
            "source": "User",
            "policy": "Pin",
        },
    }


def test_the_controller_is_as_good_as_an_administrator(cluster: RunningCluster) -> None:
    """A pod of any account in any namespace, and any Secret whose name is known."""
    thief = Thief(cluster, "controller")
    assert thief.send("POST", "pods", body=any_pod("of-the-controller")) == 201
    assert thief.send("GET", "secrets", "of-somebody") == 200
    assert thief.send("GET", "secrets") == 403
    for method in ("PATCH", "DELETE"):
        assert thief.send(method, "secrets", "of-somebody", body={}) == 403
    binding = {
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [OWNER],
    }
    assert thief.send("POST", f"rolebindings.{RBAC}", body=binding) == 403
    every = {"metadata": {"name": "mine"}, "rules": [ANYTHING]}
    assert thief.send("POST", f"roles.{RBAC}", body=every) == 403


def test_the_controller_changes_and_deletes_services_for_their_owners_sake(
    cluster: RunningCluster,
) -> None:
    """Those of share groups, which RBAC cannot tell from others."""
    thief = Thief(cluster, "controller")
    service = {"metadata": {"name": "of-a-person"}, "spec": {"ports": [{"port": 80}]}}
    cluster.create("services", service, "victim")
    turned = {"spec": {"selector": {"app": "elsewhere"}}}
    assert thief.send("PATCH", "services", "of-a-person", body=turned) == 200
    assert thief.send("DELETE", "services", "of-a-person") == 200


def test_the_scheduler_changes_any_pod(cluster: RunningCluster) -> None:
    """The image of a running container among it, which is to run anything as that pod."""
    thief = Thief(cluster, "scheduler")
    assert thief.send("PATCH", "pods", "running", body=another_image()) == 200
    assert thief.send("POST", SCALES, body=a_scale(cluster, "of-the-scheduler")) == 201
    assert thief.send("POST", "pods", body=any_pod("of-the-scheduler")) == 403
    assert thief.send("GET", "secrets", "of-somebody") == 403


def test_the_brain_scales_any_job_and_makes_no_pod(cluster: RunningCluster) -> None:
    thief = Thief(cluster, "brain")
    assert thief.send("POST", SCALES, body=a_scale(cluster, "of-the-brain")) == 201
    assert thief.send("DELETE", SCALES, "of-the-brain") == 200
    assert thief.send("GET", JOBS, "job") == 200
    for method, resource, parts, body in (
        ("POST", "pods", (), any_pod("of-the-brain")),
        ("PATCH", "pods", ("running",), another_image()),
        ("GET", "pods", (), None),
        ("GET", "secrets", ("of-somebody",), None),
        ("PATCH", JOBS, ("job",), {"spec": {"suspend": True}}),
        ("POST", f"roles.{RBAC}", (), {"metadata": {"name": "mine"}, "rules": []}),
    ):
        assert thief.send(method, resource, *parts, body=body) == 403, (method, resource)


def test_a_token_for_the_brain_is_of_no_use_at_the_api_server(cluster: RunningCluster) -> None:
    path = cluster.path("serviceaccounts", "victim", "owner", "token")
    asked = {"spec": {"audiences": ["penstock-brain"]}}
    token = cluster.ok("POST", path, asked)["status"]["token"]
    answer = cluster.request("GET", cluster.path("secrets", "victim"), token=token)
    assert answer.status == 401


def test_a_job_is_whatever_pods_its_author_describes() -> None:
    """So whoever creates ElasticJobs has any pod, unless the policy on who creates them is on."""
    wanted = any_pod("any")["spec"]
    spec = ElasticJobSpec.model_validate(
        {"strategy": "AllReduce", "replicaSpecs": {"worker": {"template": {"spec": wanted}}}}
    )
    job = Job("victim", "job", "uid", "1", 1, datetime.now(UTC), spec)
    made = replica_pod(job, spec, Role.WORKER, 0, 0, RankTarget())["spec"]
    assert made["serviceAccountName"] == "owner"
    assert made["hostPID"] is True
    assert made["containers"][0]["securityContext"]["privileged"] is True
