"""Parameter servers that ran out of memory (DLRover, section 4.2).

Twice as many servers hold half the parameters each; where one server holds far more than the mean,
more servers would not help it, and it gets twice the memory instead. The controller does the same
when nobody is there to ask; a job that already has more servers than when it failed, or a larger
server in that place, is left alone, so that nothing is doubled twice.
"""

from __future__ import annotations

from statistics import mean
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import EventKind, Role, Stage, Strategy, Trigger
from penstock.brain.planning import (
    Algorithm,
    Evidence,
    History,
    JobDescription,
    JobEvent,
    Limits,
    Params,
    Plan,
    PlanReason,
    RankPlan,
    RolePlan,
    Sample,
)
from penstock.brain.sizes import GIB, in_force, pod_memory_bytes


class OomPsParams(Params):
    """When one server is to blame, and how much more there is to be."""

    uneven: Annotated[float, Field(gt=1)] = 2.0
    """How many times the mean a server must hold for its own memory to grow."""
    growth: Annotated[int, Field(ge=2, le=8)] = 2
    """How many times the servers, or the memory, there will be."""


def plan(history: History, job: JobDescription, limits: Limits, params: OomPsParams) -> Plan | None:
    """More servers, or a larger one; None where none failed or it has been seen to."""
    if job.strategy is not Strategy.PARAMETER_SERVER or not history.plans:
        return None
    event = next(
        (
            event
            for event in reversed(history.events)
            if event.kind is EventKind.OUT_OF_MEMORY and event.role is Role.PS
        ),
        None,
    )
    if event is None or _seen_to(history, event):
        return None
    before = _before(history, event)
    planned = in_force(history).get(Role.PS)
    count = len(before.ranks(Role.PS)) if before else (planned.replicas if planned else None)
    if not count:
        return None
    ratio = _ratio(before, event)
    if ratio > params.uneven and event.memory_limit_bytes is not None:
        memory = pod_memory_bytes(event.memory_limit_bytes * params.growth, limits)
        if memory <= event.memory_limit_bytes:
            return None
        role = RolePlan(ranks={event.rank: RankPlan(memory_bytes=memory)})
        message = (
            f"server {event.rank} holds {ratio:.1f} times the mean: {memory / GIB:.3g} GiB for it"
        )
    else:
        servers = job.role(Role.PS).clamp(count * params.growth)
        if servers <= count:
            return None
        role = RolePlan(replicas=servers)
        message = f"server {event.rank} ran out of memory: {servers} servers in place of {count}"
    last = history.plans[-1].stage
    return Plan(
        stage=Stage.SAMPLE if last is Stage.CREATE else last,
        algorithm="oom_ps",
        roles={Role.PS: role},
        reason=PlanReason.OUT_OF_MEMORY,
        message=message,
        evidence=Evidence(
            figures={"rank": event.rank, "servers": count, "memory_to_mean": ratio},
            last_sample_seconds=event.time_seconds,
        ),
    )


def _seen_to(history: History, event: JobEvent) -> bool:
    """Whether the servers have been changed since, by a plan or by the controller."""
    if any(
        applied.applied_seconds >= event.time_seconds and Role.PS in applied.roles
        for applied in history.plans
    ):
        return True
    before = _before(history, event)
    if before is None or not history.samples:
        return False
    old, new = before.ranks(Role.PS), history.samples[-1].ranks(Role.PS)
    if len(new) > len(old):
        return True
    limit = new[event.rank].memory_limit_bytes if event.rank in new else None
    return (
        limit is not None
        and event.memory_limit_bytes is not None
        and limit > event.memory_limit_bytes
    )


def _before(history: History, event: JobEvent) -> Sample | None:
    """The last sample with servers from before the event."""
    for sample in reversed(history.samples):
        if sample.time_seconds <= event.time_seconds and sample.ranks(Role.PS):
            return sample
    return None


def _ratio(before: Sample | None, event: JobEvent) -> float:
    """What the killed server held over the mean of the others; 1 where that is not known."""
    if before is None:
        return 1.0
    ranks = before.ranks(Role.PS)
    others = [row.memory_bytes for rank, row in ranks.items() if rank != event.rank]
    own = event.memory_limit_bytes or (ranks[event.rank].memory_bytes if event.rank in ranks else 0)
    if not others or not own or mean(others) <= 0:
        return 1.0
    return float(own / mean(others))


ALGORITHM: Final = Algorithm(
    name="oom_ps",
    version="1",
    summary="Twice the servers, or a larger one, after a server ran out of memory.",
    stages=frozenset({Stage.SAMPLE, Stage.OPTIMIZE, Stage.ADJUST}),
    triggers=frozenset({Trigger.OUT_OF_MEMORY, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset({Strategy.PARAMETER_SERVER}),
    params=OomPsParams,
    plan=plan,
)
