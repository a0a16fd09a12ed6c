"""How many data workers a job can use, and of what size: what the scheduler starts from.

A training worker that waits for input a share x of its time would be 1 / (1 - x) times as fast with
enough of it (GoldMiner, section 3.4.1, job level). Where data workers are at work, their CPU grows
by that factor; where none is, the missing input is what the training worker's own CPU did not
manage. Data workers are small, since small ones fit where other pods leave room; how many of them
really run, and where, is the scheduler's business.

Jobs that share batches need those of the fastest of them together (`group_part`).
"""

from __future__ import annotations

import math
from statistics import median
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.algorithms.group_part import group_part, member_of
from penstock.brain.planning import (
    Algorithm,
    DataWorkerDemand,
    Evidence,
    History,
    JobDescription,
    Limits,
    Params,
    Plan,
    PlanReason,
    Sample,
)
from penstock.brain.sizes import (
    CORE,
    GIB,
    in_force,
    next_stage,
    pod_memory_bytes,
    pod_milli_cpu,
)


class DataWorkerParams(Params):
    """What a data worker is, and how many there may be, where the job does not say."""

    milli_cpu: Annotated[int, Field(ge=100)] = CORE
    """CPU of a data worker, where its template does not say."""
    memory_bytes: Annotated[int, Field(ge=64 * 1024**2)] = 2 * GIB
    """Memory of a data worker, where neither its template nor a running one says."""
    memory_margin: Annotated[float, Field(ge=0, le=4)] = 0.2
    """Share added to the memory seen in use."""
    most: Annotated[int, Field(ge=1, le=4096)] = 64
    """The most data workers where the job does not say."""


class DataWorkersParams(DataWorkerParams):
    """When input is short."""

    short: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of the time spent waiting above which input is short."""
    most_wait: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """A share above this is taken for this: how much faster a job would be is not known."""
    enough_samples: Annotated[int, Field(ge=2)] = 4
    """Latest samples whose median decides."""
    model_decides: bool = True
    """A job of whose input there is a profile is left to `offload`."""


def plan(
    history: History, job: JobDescription, limits: Limits, params: DataWorkersParams
) -> Plan | None:
    """A demand for data workers; None where input keeps up, or the demand is what it was.

    Where a profile of the job's input is there, the demand is `offload`'s (``model_decides``).
    """
    if params.model_decides and history.profile is not None:
        return None  # it knows better than a share of waiting does
    latest = history.samples[-params.enough_samples :]
    if len(latest) < params.enough_samples or not history.plans:
        return None
    shares = [share for sample in latest if (share := _wait_share(sample)) is not None]
    if len(shares) < params.enough_samples:
        return None
    wait = median(shares)
    if wait <= params.short:
        return None
    capped = min(wait, params.most_wait)
    member = member_of(history, job)
    if member is not None and len(history.group) > 1:  # those of the others serve it, too
        present = member.data_worker_milli_cpu / CORE
    else:
        present = median(_used(sample, Role.DATA_WORKER) for sample in latest)
    inline = median(_used(sample, Role.WORKER) for sample in latest)
    cores = present / (1 - capped) if present > 0 else inline * capped / (1 - capped)
    spec = job.role(Role.DATA_WORKER)
    size = pod_milli_cpu(spec.milli_cpu or params.milli_cpu, limits)
    most = params.most if spec.maximum is None else spec.maximum
    part = group_part(history, job, max(math.ceil(cores * CORE / size), 1))
    wanted = min(part.own, most, room(history, job, limits, size))
    if wanted < 1:
        return None
    demand = DataWorkerDemand(
        replicas=wanted,
        milli_cpu=size,
        memory_bytes=memory_of(latest, job, limits, params),
    )
    if last_demand(history) == (demand.replicas, demand.milli_cpu):
        return None
    return Plan(
        stage=next_stage(history),
        algorithm="data_workers",
        roles={},
        reason=PlanReason.DATA_STALL,
        message=(
            f"workers wait {wait:.0%} of their time for input: up to {wanted} data workers "
            f"of {size / CORE:g} cores would keep it coming{part.remark}"
        ),
        evidence=Evidence(
            samples=len(latest),
            first_sample_seconds=latest[0].time_seconds,
            last_sample_seconds=latest[-1].time_seconds,
            figures={
                "wait_share": wait,
                "data_worker_cores": present,
                "worker_cores": inline,
                "speed_up_at_most": 1 / (1 - capped),
            },
        ),
        data_workers=demand,
    )


def _wait_share(sample: Sample) -> float | None:
    """The mean share over the workers that report one."""
    known = [row.wait_share for row in sample.ranks(Role.WORKER).values()]
    shares = [share for share in known if share is not None]
    return sum(shares) / len(shares) if shares else None


def _used(sample: Sample, role: Role) -> float:
    """Cores that all pods of a role use."""
    return sum(row.milli_cpu for row in sample.ranks(role).values()) / CORE


def room(history: History, job: JobDescription, limits: Limits, size: int) -> int:
    """How many data workers of `size` milli-cores the quota has left beside the other roles."""
    if limits.milli_cpu is None:
        return 4096
    taken = 0
    for role, planned in in_force(history).items():
        if role is Role.DATA_WORKER:
            continue
        each = planned.milli_cpu or job.role(role).milli_cpu or 0
        own = [of.milli_cpu or each for of in planned.ranks.values()]
        taken += sum(own) + max((planned.replicas or 0) - len(own), 0) * each
    return max(limits.milli_cpu - taken, 0) // size


def memory_of(
    latest: tuple[Sample, ...], job: JobDescription, limits: Limits, params: DataWorkerParams
) -> int:
    """Bytes for a data worker: its template's, or what was seen in use and a margin, or usual."""
    requested = job.role(Role.DATA_WORKER).memory_bytes
    if requested is not None:
        return pod_memory_bytes(requested, limits)
    rows = [row for sample in latest for row in sample.ranks(Role.DATA_WORKER).values()]
    used = max((row.memory_bytes for row in rows), default=0)
    return pod_memory_bytes(used * (1 + params.memory_margin) or params.memory_bytes, limits)


def last_demand(history: History) -> tuple[int, int] | None:
    """Number and milli-cores of the last demand of this job; None where there was none."""
    for applied in reversed(history.plans):
        if applied.data_workers is not None:
            return applied.data_workers.replicas, applied.data_workers.milli_cpu
    return None


ALGORITHM: Final = Algorithm(
    name="data_workers",
    version="1",
    summary="How many data workers a job that waits for its input can use.",
    stages=frozenset({Stage.OPTIMIZE, Stage.ADJUST}),
    triggers=frozenset({Trigger.DATA_STALL, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset(Strategy),
    params=DataWorkersParams,
    plan=plan,
)
