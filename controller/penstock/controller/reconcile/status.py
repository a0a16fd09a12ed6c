"""A job's status as a whole, and the smallest merge patch that writes it.

``state`` and what `_DISPLAY` names are for people who look at columns; no decision reads them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.base.enums import DATA_ROLES, TRAINER_ROLE, JobState, Role
from penstock.controller.reconcile.desired.ranks import RolePlan
from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.observed import Job, RankRecord, RoleCounts, Scale
from penstock.crds import labels
from penstock.crds.conditions import JobCondition

_DISPLAY: Final = {
    Role.WORKER: "workers",
    Role.PS: "ps",
    Role.DATA_WORKER: "dataWorkers",
    Role.ACCELERATED_DATA_WORKER: "acceleratedDataWorkers",
}


def build_status(
    job: Job,
    conditions: Conditions,
    plans: Mapping[str, RolePlan],
    plan: Mapping[str, str] | None,
    *,
    keep_desired: bool,
    additions: Mapping[str, Any],
) -> dict[str, Any]:
    """The whole status.

    Args:
        job: the job with the status as last written.
        conditions: the conditions as they now are.
        plans: what is done about each role; a role without a plan keeps what is written.
        plan: what is said of the Scale in force, if there is one.
        keep_desired: whether the counts that say which ranks were ever reserved must stay, as they
            do while a job is suspended or has ended.
        additions: startTime, completionTime and suspendedSeconds where they change.
    """
    status: dict[str, Any] = dict(job.status.raw)
    status["observedGeneration"] = job.generation
    status["conditions"] = conditions.to_json()
    status["state"] = state(conditions).value
    status["selector"] = selector(job)
    counts: dict[str, Any] = dict(status.get("replicas") or {})
    ranks: dict[str, Any] = dict(status.get("ranks") or {})
    for role, pods in plans.items():
        if role == TRAINER_ROLE:
            if pods.records:
                status["trainer"] = _record(pods.records[0])
            continue
        written = job.status.counts.get(role, RoleCounts())
        own = pods.counts
        desired = written.desired if keep_desired else own.desired
        if desired or role in counts or role == Role.WORKER:
            counts[role] = {
                "desired": desired,
                "created": own.created,
                "ready": own.ready,
                "succeeded": own.succeeded,
                "failed": own.failed,
            }
            if role in _DISPLAY:
                status[_DISPLAY[Role(role)]] = f"{own.ready}/{own.desired}"
        kept = _ranks(role, pods)
        if kept or role in ranks:
            ranks[role] = kept
    status["replicas"] = counts
    if ranks:
        status["ranks"] = ranks
    status.pop("plan", None)
    if plan is not None:
        status["plan"] = dict(plan)
    status.update(additions)
    return status


def _ranks(role: str, plan: RolePlan) -> dict[str, dict[str, int]]:
    """The records worth writing: not zero, or of a role whose ranks are not contiguous."""
    explicit = role in DATA_ROLES
    return {
        str(rank): _record(record)
        for rank, record in sorted(plan.records.items())
        if explicit or record != RankRecord()
    }


def _record(record: RankRecord) -> dict[str, int]:
    pairs = {
        "incarnation": record.incarnation,
        "restarts": record.restarts,
        "preemptions": record.preemptions,
    }
    return {name: value for name, value in pairs.items() if value}


def plan_of(scale: Scale) -> dict[str, str]:
    """What the status says of the Scale in force."""
    plan = {"name": scale.name, "source": scale.source.value}
    return {**plan, "reason": scale.reason} if scale.reason else plan


def selector(job: Job) -> str:
    """The label selector of the job's workers, for the scale subresource."""
    return f"{labels.JOB_UID}={job.uid},{labels.ROLE}={Role.WORKER.in_names}"


def state(conditions: Conditions) -> JobState:
    """The conditions in one word."""
    if conditions.is_true(JobCondition.FAILED):
        return JobState.FAILED
    if conditions.is_true(JobCondition.SUCCEEDED):
        return JobState.SUCCEEDED
    if conditions.is_true(JobCondition.SUSPENDED):
        return JobState.SUSPENDED
    if not conditions.is_true(JobCondition.ACCEPTED):
        return JobState.PENDING
    planned = conditions.get(JobCondition.PLANNED)
    if planned is None or planned.status == "Unknown":
        return JobState.PLANNING
    if not conditions.is_true(JobCondition.RUNNING):
        return JobState.PENDING
    return JobState.SCALING if conditions.is_true(JobCondition.SCALING) else JobState.RUNNING


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The RFC 7386 patch that turns one object into another; empty where they are equal."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if name in before and old == value:
            continue
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            patch[name] = merge_patch(old, value)
        else:
            patch[name] = value
    return patch
