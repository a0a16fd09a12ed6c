"""Who makes an ElasticJob may make pods, where the optional policy is in force."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.job_policy import JOB_POLICY_NAME, job_policy
from penstock.crds.schema import crd
from penstock_cluster.registry.admission.policy_strategy import AdmissionPolicyStrategy
from penstock_cluster.registry.engine import EngineOptions
from penstock_cluster.testing import Answer, RunningCluster, api_server

RBAC = "rbac.authorization.k8s.io"
ROOT = "/apis/penstock.dev/v1alpha1/namespaces/default/elasticjobs"
MERGE = "application/merge-patch+json"
JOB: dict[str, Any] = {
    "apiVersion": "penstock.dev/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "job"},
    "spec": {
        "strategy": "AllReduce",
        "replicaSpecs": {
            "worker": {
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}},
            }
        },
    },
}
ALL = ["create", "get", "patch", "update", "delete"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server(EngineOptions(rbac=True)) as running:
        running.apply(crd(ELASTICJOB))
        for item in job_policy():
            running.apply(item)
        for name, resources in (("jobs-alone", []), ("with-pods", ["pods"])):
            account(running, name, resources)
        yield running


def account(cluster: RunningCluster, name: str, core: list[str]) -> None:
    """Somebody who may do everything with ElasticJobs, and create these things of the core."""
    jobs = [f"elasticjobs{part}" for part in ("", "/scale", "/status")]
    rules = [{"apiGroups": ["penstock.dev"], "resources": jobs, "verbs": ALL}]
    rules += [{"apiGroups": [""], "resources": [one], "verbs": ["create"]} for one in core]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    cluster.create("serviceaccounts", {"metadata": {"name": name}}, "default")
    cluster.create(f"roles.{RBAC}", {"metadata": {"name": name}, "rules": rules}, "default")
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    cluster.create(f"rolebindings.{RBAC}", binding, "default")


def send(
    cluster: RunningCluster, who: str, method: str, path: str = "", body: Any = None
) -> Answer:
    kind = MERGE if method == "PATCH" else "application/json"
    token = cluster.account_token("default", who)
    return cluster.request(method, f"{ROOT}{path}", body, content_type=kind, token=token)


def named(name: str) -> dict[str, Any]:
    document = copy.deepcopy(JOB)
    document["metadata"]["name"] = name
    return document


def test_a_job_needs_the_right_to_create_pods(cluster: RunningCluster) -> None:
    refused = send(cluster, "jobs-alone", "POST", body=named("created"))
    assert refused.status == 403
    assert (
        "denied request: who creates an ElasticJob or changes its spec must be allowed to create "
        "pods in namespace default"
    ) in refused.json["message"]
    assert send(cluster, "with-pods", "POST", body=named("created")).status == 201
    administrators = cluster.request("POST", ROOT, named("by-an-administrator"))
    assert administrators.status == 201


def test_so_does_a_change_of_its_spec(cluster: RunningCluster) -> None:
    cluster.request("POST", ROOT, named("changed"))
    grown = {"spec": {"replicaSpecs": {"worker": {"replicas": 2}}}}
    assert send(cluster, "jobs-alone", "PATCH", "/changed", grown).status == 403
    assert send(cluster, "with-pods", "PATCH", "/changed", grown).status == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "", {"metadata": {"labels": {"a": "b"}, "finalizers": ["x.dev/y"]}}),
        ("PATCH", "", {"metadata": {"finalizers": None}}),
        ("PATCH", "", {"spec": {"strategy": "AllReduce"}}),
        ("PATCH", "/scale", {"spec": {"replicas": 3}}),
        ("PATCH", "/status", {"status": {"state": "Running"}}),
        ("DELETE", "", None),
    ],
)
def test_what_makes_no_other_pods_goes_through(
    cluster: RunningCluster, method: str, path: str, body: Any
) -> None:
    cluster.request("POST", ROOT, named("kept"))
    answer = send(cluster, "jobs-alone", method, f"/kept{path}", body)
    assert answer.status == 200, answer.text


def test_without_it_the_right_to_make_jobs_is_enough(cluster: RunningCluster) -> None:
    binding = job_policy()[1]
    resource = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
    cluster.delete(resource, JOB_POLICY_NAME)
    try:
        assert send(cluster, "jobs-alone", "POST", body=named("unbound")).status == 201
    finally:
        cluster.apply(binding)


def test_the_server_adds_nothing_that_another_applier_would_have_to_own() -> None:
    strategy = AdmissionPolicyStrategy()
    for one in job_policy():
        stored = copy.deepcopy(one)
        strategy.default(stored)
        assert stored == one
