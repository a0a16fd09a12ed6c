"""``TF_CONFIG``: each pod of a TensorFlow job finds the same cluster and its own place in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import Role
from penstock.controller.reconcile.desired.pods import replica_pod
from penstock.controller.reconcile.desired.targets import RankTarget
from penstock.controller.reconcile.desired.tensorflow import tf_config
from penstock.controller.reconcile.model.parsing import read_job, read_spec
from penstock.crds.elasticjob import ElasticJobSpec
from tests.controller.life import Json, Life, template
from tests.controller.life import job as make_job

DOMAIN = "job.ns.svc"


def spec_of(strategy: str, workers: int, servers: int = 0, **more: Any) -> ElasticJobSpec:
    roles = {"ps": {"replicas": servers, "template": template()}} if servers else {}
    raw = make_job(
        workers={"replicas": workers},
        roles=roles,
        strategy=strategy,
        **{"framework": "TensorFlow", **more},
    )
    spec, fault = read_spec(raw["spec"])
    assert spec is not None, fault
    return spec


def told(spec: ElasticJobSpec, role: Role, rank: int) -> Json:
    found = tf_config(spec, role, rank, DOMAIN)
    assert found is not None
    value: Json = json.loads(found)
    return value


def test_parameter_servers_have_a_chief() -> None:
    spec = spec_of("ParameterServer", 3, 2)
    cluster = {
        "chief": ["worker-0.job.ns.svc:2222"],
        "worker": ["worker-1.job.ns.svc:2222", "worker-2.job.ns.svc:2222"],
        "ps": ["ps-0.job.ns.svc:2222", "ps-1.job.ns.svc:2222"],
    }
    for role, rank, task in (
        (Role.WORKER, 0, {"type": "chief", "index": 0}),
        (Role.WORKER, 2, {"type": "worker", "index": 1}),
        (Role.PS, 1, {"type": "ps", "index": 1}),
        (Role.EVALUATOR, 0, {"type": "evaluator", "index": 0}),
    ):
        assert told(spec, role, rank) == {"cluster": cluster, "task": task}


def test_mirrored_workers_are_all_workers() -> None:
    spec = spec_of("AllReduce", 2)
    assert told(spec, Role.WORKER, 1) == {
        "cluster": {"worker": ["worker-0.job.ns.svc:2222", "worker-1.job.ns.svc:2222"]},
        "task": {"type": "worker", "index": 1},
    }


@given(workers=st.integers(1, 12), servers=st.integers(0, 6))
def test_each_address_is_one_pods_task(workers: int, servers: int) -> None:
    """TensorFlow takes the address of a task from its type and index: it must be the pod's own."""
    spec = spec_of("ParameterServer" if servers else "AllReduce", workers, servers)
    pods = [(Role.WORKER, rank) for rank in range(workers)]
    pods += [(Role.PS, rank) for rank in range(servers)]
    found = {pod: told(spec, *pod) for pod in pods}
    clusters = [one["cluster"] for one in found.values()]
    assert all(one == clusters[0] for one in clusters)
    for (role, rank), one in found.items():
        own = clusters[0][one["task"]["type"]][one["task"]["index"]]
        assert own == f"{role.in_names}-{rank}.{DOMAIN}:2222"
    assert sum(len(hosts) for hosts in clusters[0].values()) == len(pods)


@pytest.mark.parametrize(
    ("spec", "role"),
    [
        (spec_of("AllReduce", 2, framework="PyTorch"), Role.WORKER),
        (spec_of("Local", 1), Role.WORKER),
        (spec_of("AllReduce", 2), Role.DATA_WORKER),
    ],
)
def test_who_has_none(spec: ElasticJobSpec, role: Role) -> None:
    assert tf_config(spec, role, 0, DOMAIN) is None


def test_a_pod_is_told_and_a_template_may_say_otherwise() -> None:
    raw = make_job(workers={"replicas": 2}, framework="TensorFlow")
    raw["metadata"].update(uid="u", resourceVersion="1")
    spec, _ = read_spec(raw["spec"])
    assert spec is not None
    job = read_job(raw, spec, "")
    [container] = replica_pod(job, spec, Role.WORKER, 1, 0, RankTarget())["spec"]["containers"]
    values = {one["name"]: one.get("value") for one in container["env"]}
    assert values["TF_CONFIG"] == tf_config(spec, Role.WORKER, 1, DOMAIN)
    worker = spec.replica_specs.worker.template["spec"]["containers"][0]
    worker["env"] = [{"name": "TF_CONFIG", "value": "{}"}]
    [container] = replica_pod(job, spec, Role.WORKER, 1, 0, RankTarget())["spec"]["containers"]
    assert [one["value"] for one in container["env"] if one["name"] == "TF_CONFIG"] == ["{}"]


def test_a_job_with_servers_ends_with_its_chief(life: Life) -> None:
    servers = template()
    del servers["spec"]["containers"][0]["command"]
    life.create_job(
        workers={"replicas": 2},
        roles={"ps": {"replicas": 1, "template": servers}},
        strategy="ParameterServer",
        framework="TensorFlow",
    )
    life.settle()
    [server] = life.pods("ps")
    assert "command" not in server["spec"]["containers"][0]
    life.end_pod("job-worker-1-0", 0)
    life.settle()
    assert life.condition("Succeeded") == ("False", "NotFinished")
    life.end_pod("job-worker-0-0", 0)
    life.settle()
    assert life.condition("Succeeded") == ("True", "ChiefSucceeded")
    assert life.names() == []
