"""What is done about a pod that ended, was lost, or does not start: one exhaustive table.

`classify` says what happened to a pod, `TABLE` what is done about that for its role, and `decide`
adds the budgets. There is a row for every pair of role and cause; a test goes through all of them.

Of an exit code, the main container's decides once there is one (`penstock.crds.main_container`): a
container beside it that never ends does not keep a rank from having succeeded, and one that ends
badly does not undo that. While the main container runs or has not begun, another one that fails
fails its pod; an init container and a native sidecar are named as what they are.

Where the kinds of evidence disagree, the order is: out of memory, then eviction or preemption, then
exit codes. Exit codes 137 and 143 (killed, terminated) are taken for a preemption, unless the same
error text has ended a pod of this job on another node before: then it is the program that fails,
wherever it runs, and the failure counts against ``maxRestarts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from penstock.base.enums import DATA_ROLES, TRAINER_ROLE, Role
from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.observed import (
    ContainerKind,
    ContainerState,
    Pod,
    RankRecord,
)
from penstock.crds.conditions import JobReason
from penstock.crds.elasticjob import FailurePolicy


class Cause(StrEnum):
    """What happened to the newest pod of a rank."""

    NONE = "None"  # it runs, or is on its way
    SUCCEEDED = "Succeeded"
    OUT_OF_MEMORY = "OutOfMemory"
    PREEMPTED = "Preempted"  # evicted, preempted, node lost, deleted by another, killed
    ERROR = "Error"
    BAD_IMAGE = "BadImage"
    BAD_CONFIG = "BadConfig"
    UNSCHEDULABLE = "Unschedulable"


class Response(StrEnum):
    """What is done about it."""

    KEEP = "Keep"
    DONE = "Done"
    RESTART = "Restart"  # new incarnation, counts against maxRestarts
    PREEMPTION = "Preemption"  # new incarnation, counts against maxPreemptions
    MORE_MEMORY = "MoreMemory"  # a Scale that doubles the rank's memory, then a new incarnation
    MORE_SERVERS = "MoreServers"  # a Scale that doubles the number of servers, likewise
    BACK_OFF = "BackOff"  # new incarnation after a pause, no budget
    WAIT = "Wait"  # nothing, and a condition that says why
    WAIT_THEN_FAIL = "WaitThenFail"


WORKER, PS, EVALUATOR = Role.WORKER.value, Role.PS.value, Role.EVALUATOR.value

TABLE: Final[Mapping[tuple[str, Cause], Response]] = {
    **{(role, Cause.NONE): Response.KEEP for role in (*Role, TRAINER_ROLE)},
    **{(role, Cause.SUCCEEDED): Response.DONE for role in (*Role, TRAINER_ROLE)},
    (WORKER, Cause.OUT_OF_MEMORY): Response.MORE_MEMORY,
    (EVALUATOR, Cause.OUT_OF_MEMORY): Response.MORE_MEMORY,
    (PS, Cause.OUT_OF_MEMORY): Response.MORE_SERVERS,
    (TRAINER_ROLE, Cause.OUT_OF_MEMORY): Response.RESTART,
    **{(role, Cause.PREEMPTED): Response.PREEMPTION for role in (WORKER, PS, EVALUATOR)},
    (TRAINER_ROLE, Cause.PREEMPTED): Response.PREEMPTION,
    **{(role, Cause.ERROR): Response.RESTART for role in (WORKER, PS, EVALUATOR)},
    (TRAINER_ROLE, Cause.ERROR): Response.RESTART,
    **{
        (role, cause): Response.WAIT_THEN_FAIL
        for role in (WORKER, PS, EVALUATOR, TRAINER_ROLE)
        for cause in (Cause.BAD_IMAGE, Cause.BAD_CONFIG)
    },
    **{
        (role, cause): Response.BACK_OFF
        for role in DATA_ROLES
        for cause in (Cause.OUT_OF_MEMORY, Cause.PREEMPTED, Cause.ERROR)
    },
    **{
        (role, cause): Response.WAIT
        for role in DATA_ROLES
        for cause in (Cause.BAD_IMAGE, Cause.BAD_CONFIG)
    },
    **{(role, Cause.UNSCHEDULABLE): Response.WAIT for role in (*Role, TRAINER_ROLE)},
}

_KILLED: Final = frozenset({137, 143})
_OUT_OF_MEMORY: Final = "OOMKilled"
_CRASH_LOOP: Final = "CrashLoopBackOff"
_CRASHES: Final = 5
"""After so many the kubelet has waited five minutes between them: it is no hiccup."""
_KINDS: Final = {
    ContainerKind.INIT: "init container",
    ContainerKind.SIDECAR: "sidecar container",
}
_NEVER_RAN: Final = frozenset({"StartError", "ContainerCannotRun"})
_IMAGE_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_CONFIG_REASONS: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PreCreateHookError",
        "PostStartHookError",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What `classify` found: the cause, in words, and since when or until when it goes."""

    cause: Cause
    detail: str = ""
    container: str = ""
    exit_code: int | None = None
    at: datetime | None = None


_NOTHING: Final = Finding(Cause.NONE)


def fingerprint(pod: Pod) -> str:
    """What a pod's last words have in common with those of other pods, or "" if it left none.

    The last line of its termination message without numbers, addresses and identifiers.
    """
    for container in pod.containers:
        if container.exit_code and container.message.strip():
            last = container.message.strip().splitlines()[-1]
            return re.sub(r"0x[0-9a-f]+|[0-9]+|\b[0-9a-f]{8,}\b", "#", last)
    return ""


def fingerprints(pods: Iterable[Pod]) -> dict[str, frozenset[str]]:
    """The nodes on which each fingerprint has ended a pod."""
    nodes: dict[str, set[str]] = {}
    for pod in pods:
        if pod.ended and (text := fingerprint(pod)):
            nodes.setdefault(text, set()).add(pod.node)
    return {text: frozenset(found) for text, found in nodes.items()}


def classify(pod: Pod, seen: Mapping[str, frozenset[str]] | None = None) -> Finding:
    """What happened to a pod that nobody on our side has asked to go.

    Args:
        pod: the newest pod of its rank.
        seen: `fingerprints` of the job's pods.
    """
    if pod.deleting and not pod.ended:
        return Finding(Cause.PREEMPTED, f"pod {pod.name} was deleted by another")
    failed = _failed(pod)
    at = max((one.finished_at for one in failed if one.finished_at), default=None)
    if out := next((one for one in failed if one.reason == _OUT_OF_MEMORY), None):
        text = f"{_named(out)} of pod {pod.name} was killed for using too much memory"
        if out.kind is ContainerKind.MAIN:
            return Finding(Cause.OUT_OF_MEMORY, text, out.name, out.exit_code, at)
        text += ": raise resources.limits.memory of that container in the template"
        return Finding(Cause.ERROR, text, out.name, out.exit_code, at)
    if pod.disrupted and pod.done:
        return Finding(Cause.PREEMPTED, _reason(pod, "was disrupted"), at=at)
    if pod.phase == "Failed" and pod.reason and pod.reason != "DeadlineExceeded":
        return Finding(Cause.PREEMPTED, _reason(pod, "was evicted"), at=at)
    if pod.phase == "Unknown":
        return Finding(Cause.PREEMPTED, f"the node {pod.node} of pod {pod.name} is lost")
    if failed:
        return _by_exit_code(pod, failed, at, seen or {})
    well = pod.main is not None and pod.main.exit_code == 0
    if well and pod.reason != "DeadlineExceeded":
        return Finding(Cause.SUCCEEDED)
    if pod.phase == "Failed":
        cause = Cause.ERROR if pod.reason == "DeadlineExceeded" else Cause.PREEMPTED
        return Finding(cause, _reason(pod, "failed"), at=at)
    if pod.phase == "Succeeded":
        return Finding(Cause.SUCCEEDED)
    return _not_started(pod)


def _failed(pod: Pod) -> list[ContainerState]:
    """The containers by whose exit codes a pod has failed: the main one alone, once it has ended.

    What ends beside it meanwhile, or is ended with the pod, says nothing about the training.
    """
    if pod.main is not None and pod.main.exit_code is not None:
        return [pod.main] if pod.main.exit_code else []
    return [
        one
        for one in pod.containers
        if one.exit_code
        and one.kind is not ContainerKind.SIDECAR
        and (pod.ended or one.kind is not ContainerKind.INIT)
    ]


def _named(container: ContainerState) -> str:
    return f"{_KINDS.get(container.kind, 'container')} {container.name}"


def _reason(pod: Pod, verb: str) -> str:
    told = ": ".join(part for part in (pod.reason, pod.message) if part)
    return f"pod {pod.name} {verb}" + (f" ({told})" if told else "")


def _by_exit_code(
    pod: Pod,
    failed: list[ContainerState],
    at: datetime | None,
    seen: Mapping[str, frozenset[str]],
) -> Finding:
    own = next((one for one in failed if one.exit_code not in _KILLED), None)
    if own is not None:
        text = f"{_named(own)} of pod {pod.name} exited with code {own.exit_code}"
        if own.reason in _NEVER_RAN and own.message.strip():
            text += f" ({own.reason}: {own.message.strip()})"
        return Finding(Cause.ERROR, text, own.name, own.exit_code, at)
    killed = failed[0]
    text = f"{_named(killed)} of pod {pod.name} was killed (exit code {killed.exit_code})"
    elsewhere = seen.get(fingerprint(pod), frozenset()) - {pod.node}
    cause = Cause.ERROR if elsewhere else Cause.PREEMPTED
    if elsewhere:
        text += f", with the same last words as before on node {min(elsewhere)}"
    return Finding(cause, text, killed.name, killed.exit_code, at)


def _keeps_crashing(container: ContainerState) -> bool:
    """Of a native sidecar: before it has started, what comes after it does not start either."""
    return (
        container.kind is ContainerKind.SIDECAR
        and container.waiting == _CRASH_LOOP
        and container.restarts >= _CRASHES
    )


def _not_started(pod: Pod) -> Finding:
    for container in pod.containers:
        since = pod.started or pod.created
        told = f"{_named(container)} of pod {pod.name}: {container.waiting}" + (
            f": {container.message}" if container.message else ""
        )
        if container.waiting in _IMAGE_REASONS:
            return Finding(Cause.BAD_IMAGE, told, container.name, at=since)
        if container.waiting in _CONFIG_REASONS:
            return Finding(Cause.BAD_CONFIG, told, container.name, at=since)
        if pod.phase == "Pending" and _keeps_crashing(container):
            return Finding(Cause.BAD_CONFIG, told, container.name, at=since)
    if pod.unschedulable_since is not None:
        told = f"pod {pod.name}: {pod.unschedulable_message or 'cannot be scheduled'}"
        return Finding(Cause.UNSCHEDULABLE, told, at=pod.unschedulable_since)
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Decision:
    """What `decide` makes of a finding.

    Attributes:
        response: what to do; a spent budget has already turned it into a failure.
        record: the rank's record if it is replaced: counters raised, incarnation not.
        not_before: when the replacement may be made; None: at once.
        fails_with: the reason for which the job fails, or None.
        message: why, for people.
        check_at: when to look again; None: when something changes.
    """

    response: Response
    record: RankRecord = field(default_factory=RankRecord)
    not_before: datetime | None = None
    fails_with: JobReason | None = None
    message: str = ""
    check_at: datetime | None = None


def decide(
    role: str, finding: Finding, record: RankRecord, policy: FailurePolicy, now: datetime
) -> Decision:
    """What to do about the newest pod of a rank.

    Args:
        role: the pod's role, or ``trainer``.
        finding: what happened to it.
        record: what is recorded of its rank.
        policy: the job's budgets.
        now: the present time.
    """
    response = TABLE[role, finding.cause]
    match response:
        case Response.RESTART:
            raised = RankRecord(record.incarnation, record.restarts + 1, record.preemptions)
            spent = raised.restarts > policy.max_restarts
            why = JobReason.MAX_RESTARTS_EXCEEDED
            budget = f"maxRestarts is {policy.max_restarts}"
        case Response.PREEMPTION:
            raised = RankRecord(record.incarnation, record.restarts, record.preemptions + 1)
            spent = raised.preemptions > policy.max_preemptions
            why = JobReason.MAX_PREEMPTIONS_EXCEEDED
            budget = f"maxPreemptions is {policy.max_preemptions}"
        case Response.BACK_OFF:
            raised = RankRecord(record.incarnation, record.restarts + 1, record.preemptions)
            pause = back_off(record.restarts)
            return Decision(
                response,
                raised,
                None if finding.at is None else finding.at + pause,
                message=finding.detail,
            )
        case Response.WAIT_THEN_FAIL:
            return _wait_then_fail(response, finding, record, now)
        case Response.WAIT:
            overdue = None if finding.at is None else finding.at + timing.PENDING_TOO_LONG
            return Decision(response, record, message=finding.detail, check_at=overdue)
        case _:
            return Decision(response, record, message=finding.detail)
    if spent:
        return Decision(
            response, record, fails_with=why, message=f"{finding.detail}; {budget} for each rank"
        )
    return Decision(response, raised, message=finding.detail)


def _wait_then_fail(
    response: Response, finding: Finding, record: RankRecord, now: datetime
) -> Decision:
    limit = (finding.at or now) + timing.STARTUP_BLOCKED_LIMIT
    if now < limit:
        return Decision(response, record, message=finding.detail, check_at=limit)
    return Decision(
        response, record, message=finding.detail, fails_with=startup_reason(finding.cause)
    )


def startup_reason(cause: Cause) -> JobReason:
    """The condition's reason for a pod that does not start."""
    if cause is Cause.BAD_IMAGE:
        return JobReason.IMAGE_UNAVAILABLE
    return JobReason.INVALID_CONTAINER


def back_off(failures: int) -> timedelta:
    """The pause before a data worker is replaced, after so many earlier failures of its rank."""
    factor: int = 2 ** min(failures, 16)
    doubled = timing.DATA_WORKER_BACK_OFF * factor
    return min(doubled, timing.DATA_WORKER_BACK_OFF_LIMIT)
