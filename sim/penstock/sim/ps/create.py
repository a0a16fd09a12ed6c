"""How well the first plan of a new job fits, against what its user would have asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.planning import History, JobDescription, Limits, Plan, RoleSpec
from penstock.brain.registry import Registry, load
from penstock.brain.stages import DEFAULT_POLICIES
from penstock.sim.ps.jobs.past_jobs import DAY, GeneratedJob, generate

NOW: Final = 30 * DAY


@dataclass(frozen=True, slots=True)
class CreateSummary:
    """Given over used, less 1; an out-of-memory rate is a share of jobs.

    `below_half` is the share of jobs that use less than half of the CPU they were given.
    """

    jobs: int
    median_cpu_over: float
    median_memory_over: float
    below_half: float
    short_of_cpu: float
    oom_rate: float


@dataclass(frozen=True, slots=True)
class _Fit:
    cpu_over: float
    memory_over: float
    short_of_cpu: bool
    out_of_memory: bool


def compare(past: int, new: int, seed: int) -> tuple[dict[str, CreateSummary], dict[str, int]]:
    """Plan `new` jobs from `past` ones, all of one seed; also by which algorithm each was planned.

    The new jobs are the last ones drawn: of the same families, none of them remembered.
    """
    jobs = generate(past + new, seed, now=NOW)
    remembered, fresh = jobs[:past], jobs[past:]
    history = History(now_seconds=NOW, past_jobs=tuple(job.past() for job in remembered))
    registry = load()
    planned: list[_Fit] = []
    by: dict[str, int] = {}
    for job in fresh:
        plan = _first_plan(registry, history, job)
        by[plan.algorithm] = by.get(plan.algorithm, 0) + 1
        if plan.algorithm == "history_create":
            planned.append(_judged(job, _given(plan)))
    asked = [
        _judged(
            job,
            {role: (of.replicas, of.milli_cpu, of.memory_bytes) for role, of in job.asked.items()},
        )
        for job in fresh
    ]
    return {"user": _summary(asked), "history_create": _summary(planned)}, by


def _first_plan(registry: Registry, history: History, job: GeneratedJob) -> Plan:
    description = JobDescription(
        uid=job.uid,
        strategy=Strategy.PARAMETER_SERVER,
        signature=job.signature,
        roles={Role.WORKER: RoleSpec(), Role.PS: RoleSpec()},
    )
    policy = DEFAULT_POLICIES[Strategy.PARAMETER_SERVER]
    for name in policy.stages[Stage.CREATE]:
        plan = registry[name].plan(history, description, Limits())
        if plan is not None:
            return plan
    raise AssertionError("cold_create plans every new job")


def _given(plan: Plan) -> dict[Role, tuple[int, float, float]]:
    return {
        role: (of.replicas or 0, float(of.milli_cpu or 0), float(of.memory_bytes or 0))
        for role, of in plan.roles.items()
    }


def _judged(job: GeneratedJob, given: dict[Role, tuple[int, float, float]]) -> _Fit:
    """What `given` (replicas, milli-cores and bytes of each) is to what the job uses.

    Parameters and their updates spread over other numbers of servers as over the job's own.
    """
    cpu = used_cpu = memory = used_memory = 0.0
    short = killed = False
    for role, need in job.needs.items():
        count, each_cpu, each_memory = given[role]
        cpu += count * each_cpu
        used_cpu += need.milli_cpu
        memory += count * each_memory
        used_memory += need.total_memory_bytes
        per_pod = need.replicas / count if role is Role.PS else 1.0
        short |= each_cpu < need.hottest_milli_cpu * per_pod * 0.98
        killed |= each_memory < need.peak_memory_bytes * per_pod
    return _Fit(cpu / used_cpu - 1, memory / used_memory - 1, short, killed)


def _summary(fits: Sequence[_Fit]) -> CreateSummary:
    if not fits:
        return CreateSummary(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return CreateSummary(
        jobs=len(fits),
        median_cpu_over=median(fit.cpu_over for fit in fits),
        median_memory_over=median(fit.memory_over for fit in fits),
        below_half=sum(fit.cpu_over > 1 for fit in fits) / len(fits),
        short_of_cpu=sum(fit.short_of_cpu for fit in fits) / len(fits),
        oom_rate=sum(fit.out_of_memory for fit in fits) / len(fits),
    )
