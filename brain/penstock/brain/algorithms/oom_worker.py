"""Workers that ran out of memory (DLRover, section 4.2).

The controller has doubled the memory of the rank that was killed before anybody plans; nothing
doubles it again here. Where a second rank has met the same end, it is no accident of one shard:
all workers get what the killed ones were given, so that they do not fall one after the other.
Later jobs learn from the summary of this one (`history_create`).

A worker that nobody has killed yet, but whose memory grows towards its limit, gets more before
that: a pod resized or replaced in time costs less than a killed one. Only where it is certain
enough (`penstock.brain.model.memory_growth`), near the limit and soon, and not in a job of one pod,
which might be stopped for a forecast.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import EventKind, Role, Stage, Strategy, Trigger
from penstock.brain.model.memory_growth import MemoryGrowth, memory_growth
from penstock.brain.planning import (
    Algorithm,
    Evidence,
    History,
    JobDescription,
    Limits,
    Params,
    Plan,
    PlanReason,
    RankPlan,
    RolePlan,
)
from penstock.brain.sizes import GIB, in_force, pod_memory_bytes


class OomWorkerParams(Params):
    """When it is more than an accident."""

    enough_ranks: Annotated[int, Field(ge=1)] = 2
    """Ranks that must have run out of memory before all get more."""
    growth: Annotated[float, Field(gt=1, le=8)] = 2.0
    """What the controller multiplies the memory of a killed rank with."""
    forecast_seconds: Annotated[float, Field(ge=0)] = 300.0
    """A worker whose memory will be used up within this time gets more; 0: nothing is forecast."""
    forecast_share: Annotated[float, Field(gt=0, lt=1)] = 0.7
    """Share of its memory that such a worker must use already."""
    forecast_samples: Annotated[int, Field(ge=4)] = 6
    """Samples needed for a forecast."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: OomWorkerParams
) -> Plan | None:
    """More memory for all workers once several were killed, or for those about to be.

    None where fewer ranks failed, none is about to, or all have as much already.
    """
    if not history.plans:
        return None
    return _after_kills(history, job, limits, params) or _before_kills(history, job, limits, params)


def _after_kills(
    history: History, job: JobDescription, limits: Limits, params: OomWorkerParams
) -> Plan | None:
    killed = {
        event.rank: event.memory_limit_bytes
        for event in history.events
        if event.kind is EventKind.OUT_OF_MEMORY
        and event.role is Role.WORKER
        and event.memory_limit_bytes is not None
    }
    if len(killed) < params.enough_ranks:
        return None
    needed = max(killed.values()) * params.growth
    memory = pod_memory_bytes(needed, limits)
    planned = in_force(history).get(Role.WORKER)
    present = (planned.memory_bytes if planned else None) or job.role(Role.WORKER).memory_bytes or 0
    if memory <= present:
        return None
    return Plan(
        stage=_stage(history),
        algorithm="oom_worker",
        roles={Role.WORKER: RolePlan(memory_bytes=memory)},
        reason=PlanReason.OUT_OF_MEMORY,
        message=(
            f"workers {', '.join(map(str, sorted(killed)[:8]))} ran out of memory: "
            f"{memory / GIB:.3g} GiB for every worker"
        ),
        evidence=Evidence(figures={"ranks_killed": len(killed), "memory_bytes": memory}),
    )


def _before_kills(
    history: History, job: JobDescription, limits: Limits, params: OomWorkerParams
) -> Plan | None:
    if job.strategy is Strategy.LOCAL or not history.samples or not params.forecast_seconds:
        return None
    planned = in_force(history).get(Role.WORKER, RolePlan())
    sizes: dict[int, int] = {}
    soonest: MemoryGrowth | None = None
    for rank in history.samples[-1].ranks(Role.WORKER):
        growth = memory_growth(history.samples, Role.WORKER, rank, params.forecast_samples)
        if (
            growth is None
            or growth.used_bytes < params.forecast_share * growth.limit_bytes
            or growth.seconds_left > params.forecast_seconds
        ):
            continue
        size = pod_memory_bytes(growth.limit_bytes * params.growth, limits)
        own = planned.ranks.get(rank, RankPlan()).memory_bytes or planned.memory_bytes or 0
        # A plan of that size that has not taken effect yet is not made again.
        if size > max(growth.limit_bytes, own):
            sizes[rank] = size
            if soonest is None or growth.seconds_left < soonest.seconds_left:
                soonest = growth
    if soonest is None:
        return None
    return Plan(
        stage=_stage(history),
        algorithm="oom_worker",
        roles={
            Role.WORKER: RolePlan(
                ranks={rank: RankPlan(memory_bytes=size) for rank, size in sizes.items()}
            )
        },
        reason=PlanReason.OUT_OF_MEMORY,
        message=(
            f"workers {', '.join(map(str, sorted(sizes)[:8]))} will run out of memory, the first "
            f"in {soonest.seconds_left:.0f} s ({soonest.least_seconds:.0f} to "
            f"{soonest.most_seconds:.0f}): they get more before"
        ),
        evidence=Evidence(
            samples=len(history.samples),
            last_sample_seconds=history.samples[-1].time_seconds,
            figures={
                "ranks_growing": len(sizes),
                "seconds_left": soonest.seconds_left,
                "bytes_per_second": soonest.bytes_per_second,
            },
        ),
    )


def _stage(history: History) -> Stage:
    last = history.plans[-1].stage
    return Stage.SAMPLE if last is Stage.CREATE else last


ALGORITHM: Final = Algorithm(
    name="oom_worker",
    version="2",
    summary="More memory for workers about to run out of it, or for all once several have.",
    stages=frozenset({Stage.SAMPLE, Stage.OPTIMIZE, Stage.ADJUST}),
    triggers=frozenset({Trigger.OUT_OF_MEMORY, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset(Strategy),
    params=OomWorkerParams,
    plan=plan,
)
