"""Phase and conditions as functions of container states: the real kubelet's table."""

from __future__ import annotations

import pytest

from penstock_cluster.kubelet.state.status import (
    Active,
    ContainerRecord,
    PodRecord,
    State,
    Terminated,
    Waiting,
    conditions,
    phase,
    status_patch,
)

RUNNING = Active("2030-01-01T00:00:00Z")
WAITING = Waiting("ContainerCreating")


def ended(code: int) -> Terminated:
    return Terminated(code, "Error" if code else "Completed", "t0", "t1")


OK, BAD = ended(0), ended(1)


def record(*states: State, init: tuple[State, ...] = (), **more) -> PodRecord:
    def build(state: State, number: int, is_init: bool) -> ContainerRecord:
        ready = isinstance(state, Active)
        return ContainerRecord({"name": f"c{number}"}, is_init, state, is_ready=ready)

    return PodRecord(
        "127.64.0.1",
        "127.0.0.1",
        "t0",
        [build(state, number, True) for number, state in enumerate(init)],
        [build(state, number, False) for number, state in enumerate(states)],
        is_set_up=True,
        **more,
    )


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        ("Never", [WAITING], "Pending"),
        ("Never", [RUNNING], "Running"),
        ("Never", [RUNNING, WAITING], "Pending"),
        ("Never", [RUNNING, BAD], "Running"),
        ("Never", [OK, OK], "Succeeded"),
        ("Never", [OK, BAD], "Failed"),
        ("OnFailure", [OK], "Succeeded"),
        ("OnFailure", [BAD], "Running"),
        ("OnFailure", [OK, BAD], "Running"),
        ("Always", [OK], "Running"),
        ("Always", [BAD], "Running"),
    ],
)
def test_phase(policy: str, states: list[State], expected: str) -> None:
    assert phase(policy, record(*states)) == expected


def test_who_waits_after_a_crash_is_running() -> None:
    crashed = record(Waiting("CrashLoopBackOff"))
    crashed.containers[0].last = BAD
    assert phase("Always", crashed) == "Running"


@pytest.mark.parametrize(
    ("policy", "init", "expected"),
    [
        ("Never", [RUNNING], "Pending"),
        ("Never", [BAD], "Failed"),
        ("Always", [BAD], "Pending"),
        ("Never", [OK, WAITING], "Pending"),
    ],
)
def test_phase_while_initializing(policy: str, init: list[State], expected: str) -> None:
    assert phase(policy, record(WAITING, init=tuple(init))) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [([RUNNING], "Running"), ([BAD], "Failed"), ([OK], "Succeeded"), ([WAITING], "Failed")],
)
def test_a_terminating_pod_ends_whatever_its_policy(states: list[State], expected: str) -> None:
    assert phase("Always", record(*states, is_terminating=True)) == expected


def test_a_verdict_beats_the_containers() -> None:
    assert phase("Always", record(OK, verdict=("Failed", "Evicted", "why"))) == "Failed"


def test_a_verdict_is_told_when_nothing_runs_any_more() -> None:
    assert phase("Always", record(RUNNING, verdict=("Failed", "Evicted", "why"))) == "Running"


def by_type(found: list[dict]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each.get("reason", "")) for each in found}


def test_conditions_of_a_pod_that_is_half_ready() -> None:
    half = record(RUNNING, WAITING)
    found = conditions({"spec": {}}, half, "Pending")
    assert by_type(found) == {
        "PodReadyToStartContainers": ("True", ""),
        "Initialized": ("True", ""),
        "Ready": ("False", "ContainersNotReady"),
        "ContainersReady": ("False", "ContainersNotReady"),
    }
    assert "containers with unready status: [c1]" in [each.get("message") for each in found]


def test_readiness_gates() -> None:
    pod = {"spec": {"readinessGates": [{"conditionType": "x/y"}]}, "status": {}}
    assert by_type(conditions(pod, record(RUNNING), "Running"))["Ready"][0] == "False"
    pod["status"] = {"conditions": [{"type": "x/y", "status": "True"}]}
    assert by_type(conditions(pod, record(RUNNING), "Running"))["Ready"][0] == "True"


def test_transition_times_move_only_with_the_status() -> None:
    pod = {"metadata": {"uid": "u"}, "spec": {"containers": []}, "status": {}}
    first = status_patch(pod, record(WAITING), lambda: "t1")
    pod["status"] = first
    second = status_patch(pod, record(RUNNING), lambda: "t2")
    times = {each["type"]: each["lastTransitionTime"] for each in second["conditions"]}
    assert times["Initialized"] == "t1"
    assert times["Ready"] == "t2"
    # A merge patch keeps what it does not name, so what no longer holds is set to null.
    ready = next(each for each in second["conditions"] if each["type"] == "Ready")
    assert ready["reason"] is None
