"""The first plan of a job like others that have finished (DLRover, section 4.3).

Similar jobs are found by signature, the most specific parts first: model, dataset and user; then
model and dataset; then dataset, model or user alone. The first of these that enough finished jobs
share decides. What those jobs used, not what they asked for, is averaged without the wild half
(`penstock.brain.model.robust_statistics`), and a margin is added that grows with their spread:

- servers: CPU of one = the busiest server's mean use plus a margin; their number carries the CPU
  that all servers used, plus a margin (ceil(C (1 + p) / cpu)), and is not below what those jobs
  had, because a size that was measured holds for the number it was measured with;
- memory: the largest use plus a margin; a role that ran out of memory in one of these jobs gets at
  least what the largest of them needed;
- workers: as many as those jobs had, each with the CPU it used plus a margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.model.robust_statistics import robust_sigma, tightest_half_mean
from penstock.brain.planning import (
    LEVELS,
    Algorithm,
    Evidence,
    History,
    JobDescription,
    Limits,
    Params,
    PastJob,
    Plan,
    PlanReason,
    RolePlan,
    RoleUsage,
    Signature,
)
from penstock.brain.sizes import pod_memory_bytes, pod_milli_cpu


class HistoryCreateParams(Params):
    """Which jobs count, and the margins over what they used."""

    window_seconds: Annotated[float, Field(gt=0)] = 7 * 86_400.0
    """Jobs that finished longer ago do not count."""
    enough_jobs: Annotated[int, Field(ge=1)] = 3
    """A level of similarity with fewer jobs than this is used only when no level has as many."""
    most_jobs: Annotated[int, Field(ge=1)] = 100
    """Of more jobs than this, the latest count."""
    cpu_margin: Annotated[float, Field(ge=0, le=4)] = 0.15
    """Share added to the mean CPU use of a pod."""
    servers_margin: Annotated[float, Field(ge=0, le=4)] = 0.1
    """Share added to the CPU that all servers use together (p)."""
    memory_margin: Annotated[float, Field(ge=0, le=4)] = 0.2
    """Share added to the memory use of a pod."""
    spread_margin: Annotated[float, Field(ge=0, le=10)] = 3.0
    """Robust standard deviations added to a size when that is more than the share."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: HistoryCreateParams
) -> Plan | None:
    """A plan of stage Create; None once the job has one, or where nothing similar has finished."""
    if history.plans:
        return None
    level, similar = _similar(history, job, params)
    if not similar:
        return None
    roles: dict[Role, RolePlan] = {}
    worker = _worker(job, similar, limits, params)
    if worker is not None:
        roles[Role.WORKER] = worker
    if job.strategy is Strategy.PARAMETER_SERVER:
        server = _servers(job, similar, limits, params)
        if server is not None:
            roles[Role.PS] = server
    if set(roles) != _wanted(job.strategy):
        return None
    roles = _within_quota(roles, job, limits)
    shared = " and ".join(level)
    jobs = "1 finished job" if len(similar) == 1 else f"{len(similar)} finished jobs"
    return Plan(
        stage=Stage.CREATE,
        algorithm="history_create",
        roles=roles,
        reason=PlanReason.SIMILAR_JOBS,
        message=(f"{jobs} with the same {shared}: start on what was used there, plus a margin"),
        evidence=Evidence(
            past_jobs=tuple(past.uid for past in similar),
            figures={"similar_jobs": len(similar), "level": LEVELS.index(level)},
        ),
    )


def _wanted(strategy: Strategy) -> set[Role]:
    servers = {Role.PS} if strategy is Strategy.PARAMETER_SERVER else set()
    return {Role.WORKER} | servers


def _similar(
    history: History, job: JobDescription, params: HistoryCreateParams
) -> tuple[tuple[str, ...], tuple[PastJob, ...]]:
    oldest = history.now_seconds - params.window_seconds
    eligible = sorted(
        (
            past
            for past in history.past_jobs
            if past.succeeded
            and past.strategy is job.strategy
            and oldest <= past.finished_seconds <= history.now_seconds
        ),
        key=lambda past: (past.finished_seconds, past.uid),
    )
    best: tuple[tuple[str, ...], tuple[PastJob, ...]] = (LEVELS[0], ())
    for level in LEVELS:
        wanted = _key(job.signature, level)
        if not all(wanted):
            continue
        found = tuple(past for past in eligible if _key(past.signature, level) == wanted)
        found = found[-params.most_jobs :]
        if len(found) >= params.enough_jobs:
            return level, found
        if len(found) > 0 and not best[1]:
            best = (level, found)
    return best


def _key(signature: Signature, level: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(getattr(signature, part) for part in level)


def _worker(
    job: JobDescription, similar: Sequence[PastJob], limits: Limits, params: HistoryCreateParams
) -> RolePlan | None:
    usages = _usages(similar, Role.WORKER)
    if not usages:
        return None
    cpu = _upper(usages, lambda usage: usage.milli_cpu / usage.replicas, params.cpu_margin, params)
    count = round(tightest_half_mean([usage.replicas for usage in usages]))
    return RolePlan(
        replicas=job.role(Role.WORKER).clamp(max(1, count)),
        milli_cpu=pod_milli_cpu(cpu, limits),
        memory_bytes=_memory(Role.WORKER, similar, limits, params),
    )


def _servers(
    job: JobDescription, similar: Sequence[PastJob], limits: Limits, params: HistoryCreateParams
) -> RolePlan | None:
    usages = _usages(similar, Role.PS)
    if not usages:
        return None
    hottest = _upper(usages, lambda usage: usage.hottest_milli_cpu, params.cpu_margin, params)
    size = pod_milli_cpu(hottest, limits)
    total = tightest_half_mean([usage.milli_cpu for usage in usages])
    count = math.ceil(total * (1 + params.servers_margin) / size)
    # On fewer servers than those jobs had, tensors gather in other ways than were measured, and
    # the fullest would outgrow a size that was taken from the fullest of more.
    count = max(count, round(tightest_half_mean([usage.replicas for usage in usages])), 1)
    memory = _memory(Role.PS, similar, limits, params)
    return RolePlan(replicas=job.role(Role.PS).clamp(count), milli_cpu=size, memory_bytes=memory)


def _usages(similar: Sequence[PastJob], role: Role) -> list[RoleUsage]:
    found = (past.roles.get(role) for past in similar)
    return [usage for usage in found if usage is not None and usage.replicas > 0]


def _upper(
    usages: Sequence[RoleUsage],
    of: Callable[[RoleUsage], float],
    margin: float,
    params: HistoryCreateParams,
) -> float:
    """The robust mean plus the larger of a share of it and a number of standard deviations."""
    values = [of(usage) for usage in usages]
    centre = tightest_half_mean(values)
    return centre + max(centre * margin, params.spread_margin * robust_sigma(values))


def _memory(
    role: Role, similar: Sequence[PastJob], limits: Limits, params: HistoryCreateParams
) -> int:
    usages = _usages(similar, role)
    need = _upper(usages, lambda usage: usage.peak_memory_bytes, params.memory_margin, params)
    # Too little memory ends a job where too little CPU slows it: the largest peak counts as well,
    # unless it is a wild one.
    centre = tightest_half_mean([usage.peak_memory_bytes for usage in usages])
    largest = max(usage.peak_memory_bytes for usage in usages)
    need = max(need, min(1.05 * largest, 2 * centre))
    out_of_memory = [past.roles[role] for past in similar if role in past.out_of_memory]
    for usage in out_of_memory:
        need = max(need, usage.peak_memory_bytes * (1 + params.memory_margin))
    return pod_memory_bytes(need, limits)


def _within_quota(
    roles: dict[Role, RolePlan], job: JobDescription, limits: Limits
) -> dict[Role, RolePlan]:
    """Fewer workers, down to the job's minimum, until the plan fits the job's limits."""
    if limits.milli_cpu is None and limits.memory_bytes is None:
        return roles
    worker = roles[Role.WORKER]
    count = worker.replicas or 0
    least = job.role(Role.WORKER).clamp(1)
    while count > least and not _fits(roles, count, limits):
        count -= 1
    replaced = RolePlan(
        replicas=count, milli_cpu=worker.milli_cpu, memory_bytes=worker.memory_bytes
    )
    return roles | {Role.WORKER: replaced}


def _fits(roles: dict[Role, RolePlan], workers: int, limits: Limits) -> bool:
    def total(field: str) -> int:
        return sum(
            (workers if role is Role.WORKER else plan.replicas or 0) * (getattr(plan, field) or 0)
            for role, plan in roles.items()
        )

    return (limits.milli_cpu is None or total("milli_cpu") <= limits.milli_cpu) and (
        limits.memory_bytes is None or total("memory_bytes") <= limits.memory_bytes
    )


ALGORITHM: Final = Algorithm(
    name="history_create",
    version="1",
    summary="First plan from what similar finished jobs used.",
    stages=frozenset({Stage.CREATE}),
    triggers=frozenset({Trigger.CREATED, Trigger.PROPOSED}),
    strategies=frozenset(Strategy),
    params=HistoryCreateParams,
    plan=plan,
)
