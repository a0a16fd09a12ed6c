"""Workers that ran out of memory (DLRover, section 4.2).

The controller has doubled the memory of the rank that was killed before anybody plans; nothing
doubles it again here. Where a second rank has met the same end, it is no accident of one shard:
all workers get what the killed ones were given, so that they do not fall one after the other.
Later jobs learn from the summary of this one (`history_create`).
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import EventKind, Role, Stage, Strategy, Trigger
from penstock.brain.planning import (
    Algorithm,
    Evidence,
    History,
    JobDescription,
    Limits,
    Params,
    Plan,
    PlanReason,
    RolePlan,
)
from penstock.brain.sizes import GIB, in_force, pod_memory_bytes


class OomWorkerParams(Params):
    """When it is more than an accident."""

    enough_ranks: Annotated[int, Field(ge=1)] = 2
    """Ranks that must have run out of memory before all get more."""
    growth: Annotated[float, Field(gt=1, le=8)] = 2.0
    """What the controller multiplies the memory of a killed rank with."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: OomWorkerParams
) -> Plan | None:
    """More memory for all workers; None where fewer ranks failed or all have as much already."""
    killed = {
        event.rank: event.memory_limit_bytes
        for event in history.events
        if event.kind is EventKind.OUT_OF_MEMORY
        and event.role is Role.WORKER
        and event.memory_limit_bytes is not None
    }
    if len(killed) < params.enough_ranks or not history.plans:
        return None
    needed = max(killed.values()) * params.growth
    memory = pod_memory_bytes(needed, limits)
    planned = in_force(history).get(Role.WORKER)
    present = (planned.memory_bytes if planned else None) or job.role(Role.WORKER).memory_bytes or 0
    if memory <= present:
        return None
    return Plan(
        stage=history.plans[-1].stage
        if history.plans[-1].stage is not Stage.CREATE
        else Stage.SAMPLE,
        algorithm="oom_worker",
        roles={Role.WORKER: RolePlan(memory_bytes=memory)},
        reason=PlanReason.OUT_OF_MEMORY,
        message=(
            f"workers {', '.join(map(str, sorted(killed)[:8]))} ran out of memory: "
            f"{memory / GIB:.3g} GiB for every worker"
        ),
        evidence=Evidence(figures={"ranks_killed": len(killed), "memory_bytes": memory}),
    )


ALGORITHM: Final = Algorithm(
    name="oom_worker",
    version="1",
    summary="More memory for all workers once several have run out of it.",
    stages=frozenset({Stage.SAMPLE, Stage.OPTIMIZE, Stage.ADJUST}),
    triggers=frozenset({Trigger.OUT_OF_MEMORY, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset(Strategy),
    params=OomWorkerParams,
    plan=plan,
)
