"""Workers and servers by DLRover's rule (section 4.2, equations 7 to 11).

First the servers: with w-hat and s-hat the CPU that one worker and its servers use,

    N_w = floor(C_total / (w-hat + s-hat))       s_total = C_total - N_w w-hat
    s = min(16, C_max)                    N_ps = floor(s_total / s)

Then, with the servers in place and w-hat measured again, the workers:

    w = ceil(w-hat)                       N_w = floor(min(s_total / s-hat, (C_total - N_ps s) / w))

with s_total as in equation 11, not rounded to whole servers. The paper states N_w = s_total / s-hat
alone, which does not give its Table 1; bounded by what the quota has left, it does.
"""

from __future__ import annotations

import math
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.model.measurement import Measurement, measurements, settled
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
from penstock.brain.sizes import (
    CORE,
    pod_memory_bytes,
    server_changes,
    server_memory_bytes,
    servers_rested,
)


class OptimizePsParams(Params):
    """The paper's constants."""

    server_cores: Annotated[int, Field(ge=1)] = 16
    """Cores of a server; larger pods wait longer to be placed."""
    enough_samples: Annotated[int, Field(ge=1)] = 3
    """Samples needed."""
    memory_margin: Annotated[float, Field(ge=0, le=4)] = 0.2
    """Share added to the memory seen in use."""
    server_interval_seconds: Annotated[float, Field(ge=0)] = 300.0
    """Least time from one change of servers to the next."""
    rounding: Annotated[float, Field(ge=0, lt=0.5)] = 0.05
    """By how much a measured w-hat may exceed a whole number of cores and still be rounded down."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: OptimizePsParams
) -> Plan | None:
    """The servers, then the workers; None where there is nothing (more) to do."""
    now = settled(history, job, params.enough_samples)
    if now is None or limits.milli_cpu is None:
        return None
    first = measurements(history, job)[0]
    alone_worker = first.worker_used_cores
    alone_servers = sum(first.server_used_cores) / first.workers
    quota = limits.milli_cpu / CORE
    ideal = max(math.floor(quota / (alone_worker + alone_servers)), 1)
    total = quota - ideal * alone_worker  # s_total of equation 11
    size = min(params.server_cores, limits.pod_milli_cpu // CORE)
    servers = job.role(Role.PS).clamp(max(1, math.floor(total / size)))
    figures = {
        "worker_used_cores": alone_worker,
        "servers_used_cores": alone_servers,
        "servers_total_cores": total,
        "ideal_workers": ideal,
    }
    if now.server_cores != (float(size),) * servers and server_changes(history) == 0:
        if not servers_rested(history, params.server_interval_seconds):
            return None
        return _servers_plan(history, now, servers, size, figures, limits, params)
    done = any(
        applied.stage is Stage.OPTIMIZE
        and Role.WORKER in applied.roles
        and applied.roles[Role.WORKER].replicas not in (None, first.workers)
        for applied in history.plans
    )
    if done:
        return None
    used = now.worker_used_cores
    cores = min(max(math.ceil(used - params.rounding), 1), limits.pod_milli_cpu // CORE)
    count = math.floor(min(total / alone_servers, (quota - sum(now.server_cores)) / cores))
    workers = job.role(Role.WORKER).clamp(max(1, count))
    return Plan(
        stage=Stage.OPTIMIZE,
        algorithm="optimize_ps",
        roles={
            Role.WORKER: RolePlan(
                replicas=workers,
                milli_cpu=cores * CORE,
                memory_bytes=_memory(now.worker_memory_bytes, limits, params),
            )
        },
        reason=PlanReason.THROUGHPUT_MODEL,
        message=(
            f"one worker uses {used:.1f} cores and {alone_servers:.1f} cores of the servers: "
            f"{workers} workers of {cores} cores fill the quota"
        ),
        evidence=_evidence(now, figures | {"worker_used_cores_again": used}),
    )


def _servers_plan(
    history: History,
    now: Measurement,
    servers: int,
    size: int,
    figures: dict[str, float],
    limits: Limits,
    params: OptimizePsParams,
) -> Plan:
    # The quota may be full of the large worker of the sampling: it makes room for the servers.
    room = (limits.milli_cpu or 0) // CORE - servers * size
    worker = {}
    if now.workers * now.worker_cores > room:
        need = math.ceil(now.worker_used_cores - params.rounding)
        worker[Role.WORKER] = RolePlan(milli_cpu=max(need, 1) * CORE)
    memory = server_memory_bytes(now.server_memory_bytes, len(now.server_cores), servers)
    return Plan(
        stage=Stage.OPTIMIZE,
        algorithm="optimize_ps",
        roles={
            Role.PS: RolePlan(
                replicas=servers,
                milli_cpu=size * CORE,
                memory_bytes=_memory(round(memory), limits, params),
            ),
            **worker,
        },
        reason=PlanReason.SERVERS_FIRST,
        message=(
            f"the servers of {figures['ideal_workers']:.0f} workers need "
            f"{figures['servers_total_cores']:.0f} cores: {servers} of {size} cores, "
            "the workers follow"
        ),
        evidence=_evidence(now, figures),
    )


def _memory(used: int, limits: Limits, params: OptimizePsParams) -> int | None:
    return pod_memory_bytes(used * (1 + params.memory_margin), limits) if used else None


def _evidence(now: Measurement, figures: dict[str, float]) -> Evidence:
    return Evidence(
        samples=now.samples,
        first_sample_seconds=now.first_seconds,
        last_sample_seconds=now.last_seconds,
        figures=figures,
    )


ALGORITHM: Final = Algorithm(
    name="optimize_ps",
    version="1",
    summary="DLRover's rule: servers first, then workers, from the CPU of one worker.",
    stages=frozenset({Stage.OPTIMIZE}),
    triggers=frozenset({Trigger.SAMPLED, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset({Strategy.PARAMETER_SERVER}),
    params=OptimizePsParams,
    plan=plan,
)
