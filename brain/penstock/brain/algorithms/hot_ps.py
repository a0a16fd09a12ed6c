"""Give a hot parameter server more CPU or memory (DLRover, section 4.2).

A server above 0.8 of its CPU holds up every worker. Its new size is the part of the work that it
has, of the CPU that all workers would use unhindered:

    s = min(s_hot / s_total * s-hat * N_w, C_max)

where s-hat is what one worker made the servers use. A server that would be the next to be hot is
raised by the same ratio, so that one change is enough. Memory above 0.9 of the limit is raised
likewise, before the server is killed for it.
"""

from __future__ import annotations

import math
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.model import plateau
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
    RankPlan,
    RolePlan,
)
from penstock.brain.sizes import CORE, pod_memory_bytes, server_changes, servers_rested


class HotPsParams(Params):
    """When a server is hot, and what may be done."""

    hot: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Share of its CPU above which a server is hot."""
    memory_full: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Share of its memory above which a server gets more."""
    memory_growth: Annotated[float, Field(gt=1, le=4)] = 1.5
    """How many times its memory such a server gets."""
    enough_samples: Annotated[int, Field(ge=1)] = 3
    """Samples needed."""
    server_interval_seconds: Annotated[float, Field(ge=0)] = 300.0
    """Least time from one change of servers to the next; a server short of memory does not wait."""
    most_server_changes: Annotated[int, Field(ge=1)] = 3
    """Changes of servers over the life of a job, for CPU; memory is not counted."""
    beyond_quota: bool = False
    """True: as in the paper, whose hot servers grew beyond the job's quota."""


def plan(history: History, job: JobDescription, limits: Limits, params: HotPsParams) -> Plan | None:
    """Larger servers where they are hot; None where none is, or none can grow."""
    now = settled(history, job, params.enough_samples)
    if now is None:
        return None
    memory = _memory(history, limits, params)
    cpu: dict[int, int] = {}
    few = server_changes(history) < params.most_server_changes
    # What a plateau needs was sized so that its servers are nearly full: they limit nothing.
    level = plateau.rests(history)
    if few and not level and servers_rested(history, params.server_interval_seconds):
        cpu = _cpu(history, job, now, limits, params)
    ranks = {
        rank: RankPlan(milli_cpu=cpu.get(rank), memory_bytes=memory.get(rank))
        for rank in sorted(cpu.keys() | memory.keys())
    }
    if not ranks:
        return None
    busiest = max(now.server_shares)
    return Plan(
        stage=Stage.ADJUST,
        algorithm="hot_ps",
        roles={Role.PS: RolePlan(ranks=ranks)},
        reason=PlanReason.HOT_SERVER,
        message=(
            f"the busiest server uses {busiest:.0%} of its CPU: "
            f"{len(ranks)} of {len(now.server_cores)} servers grow"
        ),
        evidence=Evidence(
            samples=now.samples,
            first_sample_seconds=now.first_seconds,
            last_sample_seconds=now.last_seconds,
            figures={
                "busiest_server": busiest,
                "servers_used_cores": sum(now.server_used_cores),
                "steps_per_second": now.steps_per_second,
            },
        ),
    )


def _cpu(
    history: History, job: JobDescription, now: Measurement, limits: Limits, params: HotPsParams
) -> dict[int, int]:
    """New milli-cores of the servers that grow, by rank."""
    if max(now.server_shares) <= params.hot:
        return {}
    first = measurements(history, job)[0]
    unhindered = sum(first.server_used_cores) / first.workers * now.workers
    total = sum(now.server_used_cores)
    largest = limits.pod_milli_cpu // CORE
    wanted = {
        rank: min(math.ceil(used / total * unhindered), largest)
        for rank, used in enumerate(now.server_used_cores)
    }
    sizes = now.server_cores
    hot = [rank for rank, share in enumerate(now.server_shares) if share > params.hot]
    ratio = max(wanted[rank] / sizes[rank] for rank in hot)
    if ratio <= 1:
        return {}
    grown = {
        rank: min(
            math.ceil(sizes[rank] * (wanted[rank] / sizes[rank] if rank in hot else ratio)), largest
        )
        for rank in wanted
        if rank in hot or wanted[rank] > params.hot * sizes[rank]
    }
    grown = {rank: size for rank, size in grown.items() if size > sizes[rank]}
    if limits.milli_cpu is not None and not params.beyond_quota:
        grown = _within(grown, now, limits.milli_cpu // CORE)
    return {rank: size * CORE for rank, size in grown.items()}


def _within(grown: dict[int, int], now: Measurement, quota: int) -> dict[int, int]:
    """The hottest first, as far as the quota has cores left."""
    left = math.floor(quota - now.cores + 1e-6)
    kept: dict[int, int] = {}
    for rank in sorted(grown, key=lambda rank: -now.server_shares[rank]):
        size = min(grown[rank], math.floor(now.server_cores[rank]) + left)
        if size > now.server_cores[rank]:
            kept[rank] = size
            left -= math.ceil(size - now.server_cores[rank])
    return kept


def _memory(history: History, limits: Limits, params: HotPsParams) -> dict[int, int]:
    """New memory of the servers that have nearly used theirs up, by rank."""
    grown = {}
    for rank, row in history.samples[-1].ranks(Role.PS).items():
        limit = row.memory_limit_bytes
        if limit is not None and row.memory_bytes > params.memory_full * limit:
            size = pod_memory_bytes(limit * params.memory_growth, limits)
            if size > limit:
                grown[rank] = size
    return grown


ALGORITHM: Final = Algorithm(
    name="hot_ps",
    version="1",
    summary="More CPU or memory for parameter servers that are nearly out of it.",
    stages=frozenset({Stage.ADJUST}),
    triggers=frozenset({Trigger.HOT_SERVER, Trigger.INTERVAL, Trigger.PROPOSED}),
    strategies=frozenset({Strategy.PARAMETER_SERVER}),
    params=HotPsParams,
    plan=plan,
)
