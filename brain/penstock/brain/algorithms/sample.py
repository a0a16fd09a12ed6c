"""Measure what one worker and its servers really use (DLRover, section 4.2, sampling).

The samples of the first configuration are the measurement; this algorithm only sees to it that
they are not distorted: a server above 0.9 of its CPU would slow the worker, and what both use
would come out too small. Such servers get more CPU first, and so does a worker above that. Once
nothing is short of CPU, or nothing can grow, there is no plan: the stage is over.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.model.measurement import Measurement, settled
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


class SampleParams(Params):
    """When a pod is short of CPU, and how much more it gets."""

    busy: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Share of its CPU above which a pod is short of it."""
    growth: Annotated[float, Field(gt=1, le=8)] = 2.0
    """How many times its CPU a pod that is short gets."""
    enough_samples: Annotated[int, Field(ge=1)] = 3
    """Samples needed."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: SampleParams
) -> Plan | None:
    """Larger pods where they are short of CPU; None when the measurement is sound or not there."""
    now = settled(history, job, params.enough_samples)
    if now is None:
        return None
    servers = now.server_cores
    busiest = max(now.server_shares)
    worker_busy = now.worker_used_cores / now.worker_cores
    roles: dict[Role, RolePlan] = {}
    left = None if limits.milli_cpu is None else limits.milli_cpu / CORE - now.cores
    if busiest > params.busy:
        size = _grown(max(servers), len(servers), left, limits, params)
        if size > max(servers):
            roles[Role.PS] = RolePlan(milli_cpu=round(size * CORE))
            left = None if left is None else left - (size - max(servers)) * len(servers)
    if worker_busy > params.busy:
        size = _grown(now.worker_cores, now.workers, left, limits, params)
        if size > now.worker_cores:
            roles[Role.WORKER] = RolePlan(milli_cpu=round(size * CORE))
    if not roles:
        return None
    return Plan(
        stage=Stage.SAMPLE,
        algorithm="sample",
        roles=roles,
        reason=PlanReason.SERVERS_SHORT_OF_CPU
        if Role.PS in roles
        else PlanReason.MEASURE_ONE_WORKER,
        message=_message(busiest, worker_busy, params),
        evidence=Evidence(
            samples=now.samples,
            first_sample_seconds=now.first_seconds,
            last_sample_seconds=now.last_seconds,
            figures=_figures(now, busiest),
        ),
    )


def _grown(
    cores: float, pods: int, left: float | None, limits: Limits, params: SampleParams
) -> int:
    """Whole cores of each of `pods` pods that have `cores` now, with `left` of the quota free."""
    size = min(cores * params.growth, limits.pod_milli_cpu / CORE)
    if left is not None:
        size = min(size, cores + max(left, 0.0) / pods)
    return int(size)


def _message(busiest: float, worker_busy: float, params: SampleParams) -> str:
    if busiest > params.busy:
        return (
            f"a server uses {busiest:.0%} of its CPU with so few workers: "
            "give the servers more before measuring"
        )
    return f"the worker uses {worker_busy:.0%} of its CPU: give it more before measuring"


def _figures(now: Measurement, busiest: float) -> dict[str, float]:
    return {
        "worker_used_cores": now.worker_used_cores,
        "servers_used_cores": sum(now.server_used_cores),
        "busiest_server": busiest,
        "steps_per_second": now.steps_per_second,
    }


ALGORITHM: Final = Algorithm(
    name="sample",
    version="1",
    summary="Sees to it that the first measurement is not short of CPU.",
    stages=frozenset({Stage.SAMPLE}),
    triggers=frozenset({Trigger.SAMPLED, Trigger.PROPOSED}),
    strategies=frozenset({Strategy.PARAMETER_SERVER}),
    params=SampleParams,
    plan=plan,
)
