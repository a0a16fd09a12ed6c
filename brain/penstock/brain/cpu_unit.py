"""Planning in another unit of CPU than the core.

Algorithms size pods of jobs with parameter servers in whole cores, as the paper does: a pod of a
large cluster is no smaller. On a machine of two cores the same algorithms plan in tenths of one:
``limits.core`` of the configuration says what they are to count as a core. They never learn of it.
What they are given is multiplied on the way in, and what they answer divided on the way out, so
that a plan means the same to everybody else. So is what its message says in "cores".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.base.enums import Role
from penstock.brain.planning import (
    MAX_MESSAGE,
    DataWorkerDemand,
    History,
    JobDescription,
    Limits,
    Plan,
    RankPlan,
    RankSample,
    RolePlan,
    RoleUsage,
)
from penstock.brain.registry import Registered
from penstock.brain.sizes import CORE

_CORES: Final = re.compile(r"(\d+(?:\.\d+)?)(?: to (\d+(?:\.\d+)?))? cores?\b")


def plan_in_grain(
    entry: Registered, history: History, job: JobDescription, limits: Limits
) -> Plan | None:
    """Run an algorithm with ``limits.core_milli_cpu`` as its core."""
    core = limits.core_milli_cpu
    if core == CORE:
        return entry.plan(history, job, limits)
    factor = CORE / core
    plan = entry.plan(_history(history, factor), _job(job, factor), _limits(limits, factor))
    if not isinstance(plan, Plan):
        return plan  # nothing, or nonsense that the caller refuses
    return replace(
        plan,
        roles=_roles(plan.roles, 1 / factor),
        message=_told(plan.message, core)[:MAX_MESSAGE],
        data_workers=_demand(plan.data_workers, 1 / factor),
    )


def _told(message: str, core: int) -> str:
    """``2 cores`` and ``1 to 2 cores`` of a message in milli-cores."""
    return _CORES.sub(
        lambda found: " to ".join(f"{float(n) * core:g}m" for n in found.groups() if n), message
    )


def _whole(milli_cpu: int, factor: float) -> int:
    return max(1, round(milli_cpu * factor))


def _some(milli_cpu: int | None, factor: float) -> int | None:
    return None if milli_cpu is None else _whole(milli_cpu, factor)


def _limits(limits: Limits, factor: float) -> Limits:
    return replace(
        limits,
        milli_cpu=_some(limits.milli_cpu, factor),
        pod_milli_cpu=_whole(limits.pod_milli_cpu, factor),
        core_milli_cpu=CORE,
    )


def _job(job: JobDescription, factor: float) -> JobDescription:
    roles = {
        role: replace(spec, milli_cpu=_some(spec.milli_cpu, factor))
        for role, spec in job.roles.items()
    }
    return replace(job, roles=roles)


def _history(history: History, factor: float) -> History:
    return replace(
        history,
        samples=tuple(
            replace(
                sample,
                roles={
                    role: {rank: _sample(row, factor) for rank, row in ranks.items()}
                    for role, ranks in sample.roles.items()
                },
            )
            for sample in history.samples
        ),
        plans=tuple(
            replace(
                plan,
                roles=_roles(plan.roles, factor),
                data_workers=_demand(plan.data_workers, factor),
            )
            for plan in history.plans
        ),
        past_jobs=tuple(
            replace(past, roles={role: _usage(usage, factor) for role, usage in past.roles.items()})
            for past in history.past_jobs
        ),
    )


def _sample(row: RankSample, factor: float) -> RankSample:
    limit = _some(row.milli_cpu_limit, factor)
    return replace(row, milli_cpu=row.milli_cpu * factor, milli_cpu_limit=limit)


def _usage(usage: RoleUsage, factor: float) -> RoleUsage:
    hottest = usage.hottest_milli_cpu * factor
    return replace(usage, milli_cpu=usage.milli_cpu * factor, hottest_milli_cpu=hottest)


def _roles(roles: Mapping[Role, RolePlan], factor: float) -> dict[Role, RolePlan]:
    return {
        role: replace(
            plan,
            milli_cpu=_some(plan.milli_cpu, factor),
            ranks={rank: _rank(own, factor) for rank, own in plan.ranks.items()},
        )
        for role, plan in roles.items()
    }


def _demand(demand: DataWorkerDemand | None, factor: float) -> DataWorkerDemand | None:
    return None if demand is None else replace(demand, milli_cpu=_whole(demand.milli_cpu, factor))


def _rank(own: RankPlan, factor: float) -> RankPlan:
    return replace(own, milli_cpu=_some(own.milli_cpu, factor))
