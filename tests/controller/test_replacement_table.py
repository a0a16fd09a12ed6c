"""The table of replacement decisions has a row for everything that can happen to every role."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import DATA_ROLES, TRAINER_ROLE, Role
from penstock.controller.reconcile.desired.replacement import (
    TABLE,
    Cause,
    Finding,
    Response,
    classify,
    decide,
    fingerprints,
)
from penstock.controller.reconcile.model.observed import (
    ContainerKind,
    ContainerState,
    Pod,
    RankRecord,
)
from penstock.crds.conditions import JobReason
from penstock.crds.elasticjob import FailurePolicy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROLES = (*(role.value for role in Role), TRAINER_ROLE)
POLICY = FailurePolicy(max_restarts=2, max_preemptions=3)


def pod(
    *containers: ContainerState,
    phase: str = "Running",
    name: str = "job-worker-0-0",
    node: str = "node-1",
    reason: str = "",
    deleting: bool = False,
    disrupted: bool = False,
    unschedulable_since: datetime | None = None,
) -> Pod:
    return Pod(
        "ns",
        name,
        f"uid-{name}",
        1,
        "job-uid",
        "worker",
        0,
        0,
        NOW,
        phase=phase,
        node=node,
        reason=reason,
        deleting=deleting,
        disrupted=disrupted,
        unschedulable_since=unschedulable_since,
        started=NOW,
        containers=containers,
    )


def ended(code: int, reason: str = "", message: str = "", name: str = "main") -> ContainerState:
    return ContainerState(name, code, reason, message, NOW)


def waiting(reason: str) -> ContainerState:
    return ContainerState("main", waiting=reason)


INIT = ContainerKind.INIT
RUNS = ContainerState("main")
NOT_YET = waiting("PodInitializing")
CRASHED_ONCE = ContainerState(
    "proxy", waiting="CrashLoopBackOff", kind=ContainerKind.SIDECAR, restarts=1
)
CRASHES = dataclasses.replace(CRASHED_ONCE, restarts=5)


def beside(
    code: int | None, reason: str = "", kind: ContainerKind = ContainerKind.BESIDE
) -> ContainerState:
    return ContainerState("side", code, reason, "", None if code is None else NOW, kind=kind)


@pytest.mark.parametrize(
    ("container", "told"),
    [
        (beside(1, kind=INIT), "init container side of pod job-worker-0-0 exited with code 1"),
        (beside(1), "container side of pod job-worker-0-0 exited with code 1"),
        (CRASHES, "sidecar container proxy of pod job-worker-0-0: CrashLoopBackOff"),
    ],
)
def test_what_fails_a_pod_is_named_as_what_it_is(container: ContainerState, told: str) -> None:
    found = classify(pod(container, NOT_YET, phase="Pending" if container.waiting else "Failed"))
    assert found.detail == told
    assert found.container == container.name


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("cause", Cause)
def test_every_pair_has_a_row(role: str, cause: Cause) -> None:
    assert (role, cause) in TABLE


def test_no_row_is_for_nothing() -> None:
    assert len(TABLE) == len(ROLES) * len(Cause)


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (pod(), Cause.NONE),
        (pod(phase="Pending"), Cause.NONE),
        (pod(ended(0), phase="Succeeded"), Cause.SUCCEEDED),
        (pod(ended(137, "OOMKilled"), phase="Failed"), Cause.OUT_OF_MEMORY),
        (pod(ended(0), beside(137, "OOMKilled"), phase="Failed"), Cause.SUCCEEDED),
        (pod(ended(1), beside(137, "OOMKilled"), phase="Failed"), Cause.ERROR),
        (pod(RUNS, beside(137, "OOMKilled")), Cause.ERROR),
        (pod(beside(137, "OOMKilled", INIT), NOT_YET, phase="Failed"), Cause.ERROR),
        (pod(ended(137), phase="Failed"), Cause.PREEMPTED),
        (pod(ended(143), phase="Failed"), Cause.PREEMPTED),
        (pod(phase="Failed", reason="Evicted"), Cause.PREEMPTED),
        (pod(phase="Failed", reason="OutOfcpu"), Cause.PREEMPTED),
        (pod(phase="Failed", reason="NodeLost"), Cause.PREEMPTED),
        (pod(ended(1), phase="Failed", disrupted=True), Cause.PREEMPTED),
        (pod(phase="Unknown"), Cause.PREEMPTED),
        (pod(deleting=True), Cause.PREEMPTED),
        (pod(ended(0), phase="Succeeded", deleting=True), Cause.SUCCEEDED),
        (pod(ended(1), phase="Failed"), Cause.ERROR),
        (pod(ended(2), phase="Failed"), Cause.ERROR),
        (pod(ended(139), phase="Failed"), Cause.ERROR),
        (pod(ended(137), beside(1), phase="Failed"), Cause.PREEMPTED),
        (pod(ended(1), beside(None)), Cause.ERROR),
        (pod(ended(137, "OOMKilled"), beside(None)), Cause.OUT_OF_MEMORY),
        (pod(ended(0), beside(None)), Cause.SUCCEEDED),
        (pod(ended(0), beside(1)), Cause.SUCCEEDED),
        (pod(ended(0), beside(None), disrupted=True), Cause.PREEMPTED),
        (pod(ended(0), beside(None), deleting=True), Cause.PREEMPTED),
        (pod(ended(0), beside(143), phase="Failed", reason="DeadlineExceeded"), Cause.ERROR),
        (pod(RUNS, beside(0)), Cause.NONE),
        (pod(RUNS, beside(1)), Cause.ERROR),
        (pod(RUNS, beside(1, kind=ContainerKind.SIDECAR)), Cause.NONE),
        (
            pod(ended(0), beside(143, kind=ContainerKind.SIDECAR), phase="Succeeded"),
            Cause.SUCCEEDED,
        ),
        (pod(beside(1, kind=INIT), NOT_YET, phase="Pending"), Cause.NONE),
        (pod(beside(1, kind=INIT), NOT_YET, phase="Failed"), Cause.ERROR),
        (pod(CRASHES, NOT_YET, phase="Pending"), Cause.BAD_CONFIG),
        (pod(CRASHED_ONCE, NOT_YET, phase="Pending"), Cause.NONE),
        (pod(CRASHES, RUNS), Cause.NONE),
        (pod(phase="Failed", reason="DeadlineExceeded"), Cause.ERROR),
        (pod(phase="Failed"), Cause.PREEMPTED),
        (pod(waiting("ErrImagePull"), phase="Pending"), Cause.BAD_IMAGE),
        (pod(waiting("ImagePullBackOff"), phase="Pending"), Cause.BAD_IMAGE),
        (pod(waiting("InvalidImageName"), phase="Pending"), Cause.BAD_IMAGE),
        (pod(waiting("CreateContainerConfigError"), phase="Pending"), Cause.BAD_CONFIG),
        (pod(waiting("ContainerCreating"), phase="Pending"), Cause.NONE),
        (pod(phase="Pending", unschedulable_since=NOW), Cause.UNSCHEDULABLE),
    ],
)
def test_classify(found: Pod, cause: Cause) -> None:
    assert classify(found).cause is cause


def test_killed_with_same_last_words_on_other_node_is_an_error() -> None:
    first = pod(ended(1, message="step 3\nlost rank 17"), phase="Failed", name="a", node="node-1")
    second = pod(ended(137, message="lost rank 4"), phase="Failed", name="b", node="node-2")
    seen = fingerprints([first, second])
    assert classify(second, seen).cause is Cause.ERROR
    assert "node-1" in classify(second, seen).detail


def test_killed_twice_on_the_same_node_is_the_nodes_fault() -> None:
    first = pod(ended(137, message="lost rank 17"), phase="Failed", name="a")
    second = pod(ended(137, message="lost rank 4"), phase="Failed", name="b")
    assert classify(second, fingerprints([first, second])).cause is Cause.PREEMPTED


def test_restart_counts_until_the_budget_is_spent() -> None:
    finding = Finding(Cause.ERROR, "container main exited with code 1")
    record = RankRecord()
    for count in (1, 2):
        decision = decide("worker", finding, record, POLICY, NOW)
        assert decision.fails_with is None
        record = decision.record
        assert (record.restarts, record.preemptions) == (count, 0)
    decision = decide("worker", finding, record, POLICY, NOW)
    assert decision.fails_with is JobReason.MAX_RESTARTS_EXCEEDED
    assert "maxRestarts is 2" in decision.message


def test_preemptions_have_a_budget_of_their_own() -> None:
    finding = Finding(Cause.PREEMPTED, "evicted")
    spent = RankRecord(incarnation=9, restarts=2, preemptions=2)
    decision = decide("worker", finding, spent, POLICY, NOW)
    assert decision.fails_with is None
    assert decision.record == RankRecord(9, 2, 3)
    decision = decide("worker", finding, decision.record, POLICY, NOW)
    assert decision.fails_with is JobReason.MAX_PREEMPTIONS_EXCEEDED


@pytest.mark.parametrize("role", DATA_ROLES)
@pytest.mark.parametrize("cause", [Cause.ERROR, Cause.OUT_OF_MEMORY, Cause.PREEMPTED])
def test_data_workers_back_off_and_never_fail_the_job(cause: Cause, role: str) -> None:
    worn = RankRecord(restarts=1000)
    decision = decide(role, Finding(cause, "x", at=NOW), worn, POLICY, NOW)
    assert decision.fails_with is None
    assert decision.response is Response.BACK_OFF
    assert decision.not_before == NOW + timedelta(minutes=5)
    fresh = decide(role, Finding(cause, "x", at=NOW), RankRecord(), POLICY, NOW)
    assert fresh.not_before == NOW + timedelta(seconds=5)


@pytest.mark.parametrize("role", ["worker", "ps", "evaluator", TRAINER_ROLE])
def test_a_bad_image_waits_ten_minutes_then_fails(role: str) -> None:
    finding = Finding(Cause.BAD_IMAGE, "cannot pull", at=NOW)
    early = decide(role, finding, RankRecord(), POLICY, NOW + timedelta(minutes=9, seconds=59))
    assert early.fails_with is None
    assert early.check_at == NOW + timedelta(minutes=10)
    late = decide(role, finding, RankRecord(), POLICY, NOW + timedelta(minutes=10))
    assert late.fails_with is JobReason.IMAGE_UNAVAILABLE


def test_a_program_that_never_started_is_failed_with_what_the_runtime_said() -> None:
    told = 'exec: "/no/such/cmd": no such file or directory'
    finding = classify(pod(ended(128, "StartError", told), phase="Failed"))
    assert finding.cause is Cause.ERROR
    assert finding.detail.endswith(f"exited with code 128 (StartError: {told})")
    assert "log" not in classify(pod(ended(1, "Error", "log"), phase="Failed")).detail


@given(
    code=st.sampled_from([0, 1, 2, 137, 139, 143]),
    out_of_memory=st.booleans(),
    others=st.lists(
        st.builds(
            beside,
            st.sampled_from([None, 0, 1, 137, 143]),
            st.sampled_from(["", "OOMKilled", "Error"]),
            st.sampled_from([one for one in ContainerKind if one is not ContainerKind.MAIN]),
        ),
        max_size=4,
    ),
)
def test_once_the_training_has_ended_nothing_beside_it_counts(
    code: int, out_of_memory: bool, others: list[ContainerState]
) -> None:
    main = ended(code, "OOMKilled" if code and out_of_memory else "")
    alone = classify(pod(main, phase="Failed" if code else "Succeeded"))
    for phase in ("Running", "Failed"):
        found = classify(pod(*others, main, phase=phase))
        assert (found.cause, found.detail) == (alone.cause, alone.detail)
