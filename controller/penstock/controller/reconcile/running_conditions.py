"""The conditions Running, Scaling and StorageHealthy: what is seen of a job, added up.

The first two follow from the plans for its roles, the last from what its trainer says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.base.enums import TRAINER_ROLE, Role
from penstock.controller.reconcile.desired.ranks import RolePlan
from penstock.controller.reconcile.desired.targets import Target, bounds
from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.observed import Problem, Refusal
from penstock.crds.conditions import UNWRITTEN, JobCondition, JobReason
from penstock.crds.elasticjob import ElasticJobSpec

FORBIDDEN: Final = 403
_SHOWN: Final = 5
_HANGS: Final = (JobReason.TRAINING_STANDS_STILL, JobReason.HUNG_PROCESS_ENDED)
"""What stands still now is said before what was done about it a moment ago."""

_CURES: Final = {
    "violates PodSecurity": "set what it names in the template of the pod's role, or ask for "
    "another level of the namespace's label pod-security.kubernetes.io/enforce",
    "exceeded quota": "lower what the job asks for, or have the namespace's ResourceQuota raised",
    "failed quota": "set what it names under resources in the template of the pod's role, or have "
    "the namespace given a LimitRange with defaults",
}
"""What to do, by what the API server says of a pod that it forbids."""


def set_storage_healthy(conditions: Conditions, problems: Sequence[Problem]) -> None:
    """StorageHealthy is False while the trainer says that something cannot be written."""
    kind = JobCondition.STORAGE_HEALTHY
    failing = [one for reason in UNWRITTEN for one in problems if one.reason is reason]
    if failing:
        text = "; ".join(one.message for one in failing)
        conditions.set(kind, False, failing[0].reason, text)
    else:
        conditions.set(kind, True, JobReason.NOTHING_UNWRITTEN)


def set_running(
    conditions: Conditions,
    spec: ElasticJobSpec,
    target: Target,
    plans: Mapping[str, RolePlan],
    *,
    problems: Sequence[Problem],
    input_is_local: bool,
) -> None:
    """Running is True while at least minReplicas workers are Ready or have succeeded."""
    workers = plans[Role.WORKER]
    replicas = target.role(Role.WORKER).replicas
    there = sum(
        rank in workers.succeeded or (pod.live and pod.ready)
        for rank, pod in workers.current.items()
        if rank < replicas
    )
    enough = max(1, min(bounds(spec, Role.WORKER)[0], replicas))
    text = f"{there} of {replicas} workers are ready; at least {enough} are needed"
    if there < enough:
        conditions.set(JobCondition.RUNNING, False, JobReason.WAITING_FOR_WORKERS, text)
    elif hangs := [one for reason in _HANGS for one in problems if one.reason is reason]:
        conditions.set(JobCondition.RUNNING, True, hangs[0].reason, hangs[0].message)
    elif over := [one for one in problems if one.reason is JobReason.BUDGET_NOT_KEPT]:
        conditions.set(JobCondition.RUNNING, True, over[0].reason, over[0].message)
    elif input_is_local:
        text += "; data workers kept failing, so the input pipeline runs in the workers"
        conditions.set(JobCondition.RUNNING, True, JobReason.INPUT_RUNS_LOCALLY, text)
    else:
        conditions.set(JobCondition.RUNNING, True, JobReason.ENOUGH_WORKERS, text)


def set_scaling(
    conditions: Conditions,
    spec: ElasticJobSpec,
    target: Target,
    plans: Mapping[str, RolePlan],
    refusals: Mapping[str, Refusal],
) -> None:
    """Scaling is True while pods come or go; False says that they have, or why they cannot."""
    kind = JobCondition.SCALING
    refused = [one for one in refusals.values() if one.code == FORBIDDEN]
    blocked = [one for plan in plans.values() for one in plan.blocked]
    if refused:
        text = f"{refused[0].what}: {refused[0].message}{_cure(refused[0].message)}"
        conditions.set(kind, False, JobReason.POD_REFUSED, text)
        return
    if blocked:
        reason, text = blocked[0]
        conditions.set(kind, False, reason, _more(text, len(blocked)))
        return
    short = _too_few(spec, target, plans)
    if short:
        conditions.set(kind, False, JobReason.UNSCHEDULABLE, short)
        return
    coming = _coming(target, plans)
    if coming:
        conditions.set(kind, True, JobReason.CHANGING, coming)
        return
    overdue = [one for plan in plans.values() for one in plan.unschedulable.values()]
    if overdue:
        text = _more(f"the job trains with what there is; {overdue[0].detail}", len(overdue))
        conditions.set(kind, False, JobReason.PARTIALLY_SCHEDULED, text)
    else:
        conditions.set(kind, False, JobReason.SETTLED)


def _cure(refusal: str) -> str:
    found = [cure for words, cure in _CURES.items() if words in refusal]
    return f"; {found[0]}" if found else ""


def _more(text: str, count: int) -> str:
    return text if count == 1 else f"{text} (and {count - 1} more)"


def _too_few(spec: ElasticJobSpec, target: Target, plans: Mapping[str, RolePlan]) -> str:
    """Why fewer than minReplicas of a role can be placed, or ""."""
    for name, plan in plans.items():
        if name == TRAINER_ROLE:
            replicas, least = 1, 1
        else:
            role = Role(name)
            replicas = target.role(role).replicas
            least = min(bounds(spec, role)[0], replicas)
        overdue = {rank: one for rank, one in plan.unschedulable.items() if rank < replicas}
        if overdue and replicas - len(overdue) < least:
            first = next(iter(overdue.values()))
            return _more(
                f"{name}: only {replicas - len(overdue)} of at least {least} can be placed;"
                f" {first.detail}",
                len(overdue),
            )
    return ""


def _coming(target: Target, plans: Mapping[str, RolePlan]) -> str:
    """What is still under way, in words, or "".

    Waited for are pods of the quota that are not Ready and pods that are leaving. Not waited for
    are spare workers, pods that are overdue, and data workers that the planner has not placed.
    """
    told: list[str] = []
    for name, plan in plans.items():
        replicas = 1 if name == TRAINER_ROLE else target.role(Role(name)).replicas
        waiting: list[int] = []
        for rank in sorted(plan.wanted):
            pod = plan.current.get(rank)
            spare = name == Role.WORKER and rank >= replicas
            if spare or rank in plan.succeeded or rank in plan.unschedulable:
                continue
            if pod is None or not (pod.gated or (pod.live and pod.ready)):
                waiting.append(rank)
        if waiting:
            shown = ", ".join(str(rank) for rank in waiting[:_SHOWN])
            more = f" and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else ""
            told.append(f"{name}: waits for rank {shown}{more}")
        leaving = plan.leaving + len(plan.remove)
        if leaving:
            told.append(f"{name}: {leaving} leaving")
    return "; ".join(told)
