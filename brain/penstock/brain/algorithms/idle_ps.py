"""Add workers where parameter servers are idle (DLRover, section 4.2).

What one worker makes the servers use is estimated again, s-hat = used / N_w, and the workers grow
to min(s_total / s-hat, ceiling). Within the quota they are workers like the others; beyond it they
are spare workers, of low priority and the first to be preempted, as many as the job's spec allows.
"""

from __future__ import annotations

import math
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.model import plateau
from penstock.brain.model.measurement import measurements, settled
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
from penstock.brain.sizes import CORE


class IdlePsParams(Params):
    """When servers are idle, and how far workers may grow."""

    idle: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Share of its CPU below which even the busiest server counts as idle."""
    ceiling: Annotated[int, Field(ge=1, le=4096)] = 100
    """The most workers: more make gradients too stale."""
    enough_samples: Annotated[int, Field(ge=1)] = 3
    """Samples needed."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: IdlePsParams
) -> Plan | None:
    """More workers; None where the servers are busy or no worker may be added."""
    now = settled(history, job, params.enough_samples)
    if now is None:
        return None
    total, used = sum(now.server_cores), sum(now.server_used_cores)
    if max(now.server_shares) >= params.idle or used <= 0:
        return None
    if plateau.rests(history) or plateau.find(measurements(history, job), params.enough_samples):
        return None  # that the servers are idle is because something else limits the job
    spec = job.role(Role.WORKER)
    wanted = min(math.floor(total / (used / now.workers)), params.ceiling)
    within = wanted
    if limits.milli_cpu is not None:
        left = limits.milli_cpu / CORE - total
        within = min(wanted, math.floor(left / now.worker_cores + 1e-6))
    present = now.workers
    replicas = spec.clamp(max(within, 1))
    spare = min(max(wanted - replicas, 0), spec.spare)
    if replicas + spare <= present:
        return None
    return Plan(
        stage=Stage.ADJUST,
        algorithm="idle_ps",
        roles={Role.WORKER: RolePlan(replicas=replicas, spare_replicas=spare)},
        reason=PlanReason.IDLE_SERVERS,
        message=(
            f"even the busiest server uses only {max(now.server_shares):.0%} of its CPU: "
            f"{replicas + spare - present} more workers, {spare} of them spare"
        ),
        evidence=Evidence(
            samples=now.samples,
            first_sample_seconds=now.first_seconds,
            last_sample_seconds=now.last_seconds,
            figures={
                "busiest_server": max(now.server_shares),
                "servers_used_cores": used,
                "workers": present,
                "workers_wanted": wanted,
            },
        ),
    )


ALGORITHM: Final = Algorithm(
    name="idle_ps",
    version="1",
    summary="More workers where parameter servers are idle, spare ones beyond the quota.",
    stages=frozenset({Stage.ADJUST}),
    triggers=frozenset({Trigger.IDLE_SERVERS, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset({Strategy.PARAMETER_SERVER}),
    params=IdlePsParams,
    plan=plan,
)
