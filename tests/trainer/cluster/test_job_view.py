"""What a job's spec says to the Brain, whatever its templates hold."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.enums import OnHang, Role
from penstock.crds.elasticjob import ElasticJob
from penstock.parameter_server.control.records.servers import ServerPod
from penstock.trainer.cluster.job_view import (
    PodLimits,
    facts_of,
    registration_of,
    role_pods,
    worker_pods,
)
from penstock.trainer.standstill.response import HangPolicy


def job(resources: dict[str, Any]) -> ElasticJob:
    container = {"name": "main", "image": "x", "resources": resources}
    worker = {"maxReplicas": 4, "template": {"spec": {"containers": [container]}}}
    return ElasticJob.model_validate(
        {
            "metadata": {"name": "j", "namespace": "default", "uid": "u"},
            "spec": {"strategy": "AllReduce", "replicaSpecs": {"worker": worker}},
        }
    )


@pytest.mark.parametrize("amount", ["0", 0, "-0", "0m", "-1", -1, None, "0" * 40 + "1", "lots", []])
@pytest.mark.parametrize("field", ["requests", "limits"])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_an_amount_that_says_nothing_is_none_stated(
    field: str, resource: str, amount: object
) -> None:
    said = registration_of(job({field: {resource: amount}}), 4, None).roles[Role.WORKER]
    assert (said.cpu, said.memory) == (None, None)


def test_requests_go_before_limits_and_numbers_are_amounts() -> None:
    resources = {"requests": {"cpu": 2}, "limits": {"cpu": "4", "memory": "1Gi"}}
    said = registration_of(job(resources), 4, None).roles[Role.WORKER]
    assert (said.cpu, said.memory) == ("2", "1Gi")


def test_the_brain_is_told_of_the_main_container_and_of_units_that_are_some() -> None:
    spec = job({"requests": {"cpu": 2}}).model_dump(by_alias=True, exclude_none=True)
    worker = spec["spec"]["replicaSpecs"]["worker"]
    said = registration_of(ElasticJob.model_validate(spec), 4, None).roles[Role.WORKER]
    assert "unit" not in said.model_dump(mode="json")
    worker["template"]["spec"]["containers"].insert(0, {"name": "proxy"})
    worker.update(nodeUnit=2, minReplicas=2)
    said = registration_of(ElasticJob.model_validate(spec), 4, None).roles[Role.WORKER]
    assert (said.cpu, said.unit) == ("2", 2)
    assert said.model_dump(mode="json")["unit"] == 2


def test_programs_of_tensorflow_are_no_silent_copies() -> None:
    spec = job({}).model_dump(by_alias=True, exclude_none=True)
    assert not facts_of(ElasticJob.model_validate(spec)).independent
    spec["spec"]["framework"] = "TensorFlow"
    assert facts_of(ElasticJob.model_validate(spec)).independent


def test_what_is_done_about_hangs_is_what_the_spec_says_and_nothing_without_it() -> None:
    spec = job({}).model_dump(by_alias=True, exclude_none=True)
    facts = facts_of(ElasticJob.model_validate(spec))
    assert (facts.hang_policy.response, facts.rank_failures) == (OnHang.REPORT, {})
    spec["spec"]["failurePolicy"] = {"onHang": "Restart", "onHangAfterSeconds": 5, "maxRestarts": 2}
    spec["status"] = {"ranks": {"worker": {"1": {"restarts": 2}}}}
    facts = facts_of(ElasticJob.model_validate(spec))
    assert facts.hang_policy == HangPolicy(OnHang.RESTART, 5.0, 2)
    assert facts.rank_failures == {1: 2}


def test_a_worker_has_ended_when_its_training_has() -> None:
    running = pod("worker", 1, 0, "Running")
    pods = [pod("worker", 0, 2, "Running"), running]
    pods[0]["spec"]["containers"].append({"name": "shipper"})
    pods[0]["status"]["containerStatuses"] = [
        {"name": "shipper", "state": {"running": {}}},
        {"name": "main", "state": {"terminated": {"exitCode": 0}}},
    ]
    found = worker_pods(pods)
    assert found.ended == ((0, 2),)
    assert found.expected == frozenset({1})


def pod(role: str, rank: int, incarnation: int, phase: str, **limits: str) -> dict[str, Any]:
    tags = {
        "penstock.dev/role": role,
        "penstock.dev/rank": str(rank),
        "penstock.dev/incarnation": str(incarnation),
    }
    container = {"name": "main", "resources": {"limits": limits}}
    return {
        "metadata": {"name": f"{role}-{rank}-{incarnation}", "labels": tags},
        "spec": {"containers": [container]},
        "status": {"phase": phase},
    }


def test_limits_are_those_of_the_newest_pod_and_servers_are_told_apart_by_incarnation() -> None:
    old = pod("ps", 0, 0, "Running", cpu="500m", memory="1Gi")
    old["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    found = role_pods(
        [
            pod("ps", 0, 1, "Running", cpu="2", memory="2Gi"),
            old,
            pod("ps", 1, 0, "Failed"),
            pod("worker", 3, 0, "Running", cpu="1"),
            pod("trainer", 0, 0, "Running"),
            {"metadata": {"name": "foreign"}},
            pod("accelerated-data-worker", 2, 0, "Running"),
        ]
    )
    assert found.accelerated == {"accelerated-data-worker-2-0"}
    assert found.limits == {
        (Role.ACCELERATED_DATA_WORKER, 2): PodLimits(),
        (Role.PS, 0): PodLimits(2000, 2 << 30),
        (Role.WORKER, 3): PodLimits(1000, None),
    }
    assert found.servers == {(0, 1): ServerPod(False, 2 << 30), (0, 0): ServerPod(True, 1 << 30)}
    assert found.ended_servers == {(1, 0)}


@pytest.mark.parametrize(
    ("said", "amount"), [(None, None), (250, 250.0), ("12.50", 12.5), ("2k", 2000.0), ("9E", 1e12)]
)
def test_the_brain_is_told_of_the_budget(said: object, amount: float | None) -> None:
    document = job({})
    if said is not None:
        document = document.model_copy(
            update={"spec": document.spec.model_copy(update={"budget": str(said)})}
        )
    assert registration_of(document, 4, None).budget == amount
