"""What the Brain is told of pods that died; read from the pods, so that twice is harmless."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.enums import EventKind, Role
from penstock.trainer.cluster.pod_events import pod_events

GIB = 2**30


def pod(
    role: str = "worker",
    rank: str = "3",
    reason: str = "Error",
    code: int = 137,
    at: str | None = "2026-01-01T00:00:10Z",
    **status: Any,
) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}
    limits = {"limits": {"memory": "2Gi"}}
    return {
        "metadata": {"labels": {"penstock.dev/role": role, "penstock.dev/rank": rank}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": limits}]},
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"name": "main", "state": state}],
            **status,
        },
    }


def test_a_container_that_was_killed_for_its_memory_names_the_limit() -> None:
    [event] = pod_events([pod(reason="OOMKilled")])
    assert (event.kind, event.role, event.rank) == (EventKind.OUT_OF_MEMORY, Role.WORKER, 3)
    assert (event.memory_limit_bytes, event.node) == (2 * GIB, "n1")
    assert event.time == 1767225610.0
    assert pod_events([pod(reason="OOMKilled")]) == [event]


def test_evicted_and_disrupted_are_preempted_and_the_rest_failed() -> None:
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    died = [
        pod(at="2026-01-01T00:00:12Z", conditions=disrupted),
        pod(at="2026-01-01T00:00:11Z", reason="Evicted"),
        pod(role="ps", rank="0"),
    ]
    died[1]["status"]["reason"] = "Evicted"
    assert [(one.role, one.kind) for one in pod_events(died)] == [
        (Role.PS, EventKind.FAILED),
        (Role.WORKER, EventKind.PREEMPTED),
        (Role.WORKER, EventKind.PREEMPTED),
    ]


@pytest.mark.parametrize(
    "other",
    [
        pod(phase="Running"),
        pod(phase="Succeeded"),
        pod(role="trainer", rank="0"),
        pod(rank="-1"),
        pod(rank="99999"),
        pod(code=0),
        pod(at=None),
        pod(at="yesterday"),
        pod(containerStatuses=None),
        {"metadata": {}},
    ],
)
def test_others_and_those_that_did_not_fail_are_no_events(other: dict[str, Any]) -> None:
    assert pod_events([other]) == []


@pytest.mark.parametrize("memory", [None, "lots", "0"])
def test_a_limit_that_says_nothing_is_none(memory: str | None) -> None:
    killed = pod(reason="OOMKilled")
    killed["spec"]["containers"][0]["resources"] = {"limits": {"memory": memory} if memory else {}}
    assert pod_events([killed])[0].memory_limit_bytes is None
