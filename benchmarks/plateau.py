"""What the Brain does with a job that something outside its model limits.

``python -m benchmarks.plateau --json``

Random jobs, each with a speed that all its resources together cannot raise: a shared disk, a
licence, a feed. Jobs with parameter servers are those of ``penstock sim ps --random`` with a bound
of 25 to 80 % of what a well-tuned quota makes; AllReduce jobs scale nearly linearly up to a bound
that 3 to 40 workers reach. The Brain's own algorithms plan them in the order and under the checks
of the Brain, seeing the samples of the last half hour, with noise of 1 to 4 %. What is reported is
true: the speed over the bound, and the cores (the workers, where all are alike) over the fewest
that make 98 % of it, found by trying every configuration.

``--without`` leaves out what detects a plateau, for comparison.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from os import getloadavg
from statistics import median
from typing import Final

import numpy as np

from benchmarks.goals import Goal, at_least, at_most, report
from penstock.base.enums import Role, Stage, Strategy
from penstock.brain.algorithms import scale_allreduce
from penstock.brain.control.planner import WINDOW_SECONDS
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    Limits,
    Plan,
    RankSample,
    RolePlan,
    RoleSpec,
    Sample,
)
from penstock.brain.registry import AlgorithmSettings, load
from penstock.sim.ps.jobs.oracle import least_cores, well_tuned
from penstock.sim.ps.jobs.random_models import random_cases
from penstock.sim.ps.planners import FITTED, BrainPlanner
from penstock.sim.ps.run import simulate

FULL: Final = 0.98
"""Part of the bound that counts as full speed."""
MOST_WORKERS: Final = 128


@dataclass(frozen=True, slots=True)
class Row:
    """One job: its speed over the bound, what it has over the least, and its changes.

    `changes_after` are those from the first configuration that meets the bound on.
    """

    strategy: str
    job: int
    speed: float
    least: int
    has: float
    ratio: float
    changes: int
    changes_after: int


@dataclass(frozen=True, slots=True)
class Windowed:
    """A planner that sees what the Brain's would: the samples of its window."""

    planner: BrainPlanner

    def __call__(self, history: History, job: JobDescription, limits: Limits) -> Plan | None:
        since = history.now_seconds - WINDOW_SECONDS
        kept = tuple(sample for sample in history.samples if sample.time_seconds >= since)
        return self.planner(replace(history, samples=kept), job, limits)


def parameter_servers(job: int, seed: int, *, without: bool = False) -> Row:
    """One job with parameter servers, from its first plan to its last."""
    case = random_cases(job + 1, seed)[job]
    rng = np.random.default_rng([seed, job, 1])
    bound = float(rng.uniform(0.25, 0.8)) * well_tuned(case).steps_per_second
    case = replace(case, model=replace(case.model, bound_steps_per_second=bound))
    least = least_cores(case, FULL * bound)
    assert least is not None, "a well-tuned quota makes more than the bound"
    never = {"fitted_ps": AlgorithmSettings(params={"plateau_samples": 10**6})}
    registry = load(never if without else None)
    outcome = simulate(case, Windowed(BrainPlanner(registry, FITTED)), seed)
    speeds = [speed for _, speed in outcome.speeds]
    met = next((i for i, speed in enumerate(speeds) if speed >= FULL * bound), len(speeds))
    met_at = outcome.speeds[met][0] if met < len(speeds) else float("inf")
    return Row(
        strategy=str(Strategy.PARAMETER_SERVER),
        job=job,
        speed=round(outcome.final_steps_per_second / bound, 3),
        least=least,
        has=outcome.config.cores,
        ratio=round(outcome.config.cores / least, 3),
        changes=len(outcome.plans) - 1,
        changes_after=sum(plan.time_seconds >= met_at for plan in outcome.plans),
    )


def all_reduce(job: int, seed: int, *, without: bool = False) -> Row:
    """One AllReduce job: a sample every 15 s, asked every 60 s, a change takes 120 s."""
    rng = np.random.default_rng([seed, job, 2])
    serial, knee = float(rng.uniform(0, 0.01)), float(rng.uniform(3, 40))
    noise = float(rng.uniform(0.01, 0.04))

    def free(workers: float) -> float:
        return workers / (1 + serial * (workers - 1))

    bound = free(knee)
    least = next(n for n in range(1, MOST_WORKERS) if free(n) >= FULL * bound)
    description = JobDescription(
        uid=f"all-reduce-{job}",
        strategy=Strategy.ALL_REDUCE,
        roles={Role.WORKER: RoleSpec(maximum=MOST_WORKERS, milli_cpu=1000)},
    )
    saving = {"saving": 4.0} if without else {}
    params = scale_allreduce.ScaleAllReduceParams(**saving)
    workers, now, met, after = 1, 0.0, False, 0
    plans = [_applied(1, Stage.CREATE, now)]
    samples: list[Sample] = []
    while now < 7200:
        for _ in range(4):
            now += 15
            speed = min(free(workers), bound)
            seen = 10 * speed * float(rng.lognormal(0, noise))
            samples.append(_sample(workers, seen, now))
        met = met or min(free(workers), bound) >= FULL * bound
        kept = tuple(s for s in samples if s.time_seconds >= now - WINDOW_SECONDS)
        history = History(now_seconds=now, samples=kept, plans=tuple(plans))
        made = scale_allreduce.plan(history, description, Limits(), params)
        if made is not None:
            workers = made.roles[Role.WORKER].replicas or workers
            after += met
            now += 120
            plans.append(_applied(workers, made.stage, now, made.reason))
    return Row(
        strategy=str(Strategy.ALL_REDUCE),
        job=job,
        speed=round(min(free(workers), bound) / bound, 3),
        least=least,
        has=workers,
        ratio=round(workers / least, 3),
        changes=len(plans) - 1,
        changes_after=after,
    )


def _applied(workers: int, stage: Stage, at: float, reason: str = "") -> AppliedPlan:
    return AppliedPlan(
        applied_seconds=at,
        roles={Role.WORKER: RolePlan(replicas=workers, milli_cpu=1000)},
        stage=stage,
        reason=reason,
        settled_seconds=at,
    )


def _sample(workers: int, speed: float, at: float) -> Sample:
    rows = {rank: RankSample(milli_cpu=900.0, milli_cpu_limit=1000) for rank in range(workers)}
    return Sample(
        time_seconds=at,
        step=round(at * speed),
        steps_per_second=speed,
        world_size=workers,
        roles={Role.WORKER: rows},
    )


def rows_of(jobs: int, seed: int, processes: int, *, without: bool = False) -> list[Row]:
    """All jobs of both strategies."""
    servers = partial(parameter_servers, seed=seed, without=without)
    together = partial(all_reduce, seed=seed, without=without)
    if processes == 1:
        return [*map(servers, range(jobs)), *map(together, range(jobs))]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return [*pool.map(servers, range(jobs)), *pool.map(together, range(jobs))]


def goals_of(rows: Sequence[Row]) -> Iterable[Goal]:
    """Full speed, at most 1.15 times the least, within 5 changes: for each strategy."""
    for strategy in dict.fromkeys(row.strategy for row in rows):
        own = [row for row in rows if row.strategy == strategy]
        yield at_least(f"{strategy}: slowest over its bound", FULL, min(r.speed for r in own))
        yield at_most(f"{strategy}: largest over the least", 1.15, max(r.ratio for r in own))
        yield at_most(f"{strategy}: median over the least", 1.15, median(r.ratio for r in own))
        good = sum(r.speed >= FULL and r.ratio <= 1.15 and r.changes_after <= 5 for r in own)
        yield at_least(f"{strategy}: share of jobs that keep all three", 1.0, good / len(own))
        changes = max(r.changes_after for r in own)
        yield at_most(f"{strategy}: changes once the bound is met", 5, changes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100, help="of each strategy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--without", action="store_true", help="do not detect plateaus")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    load_before = getloadavg()[0]
    rows = rows_of(options.jobs, options.seed, options.processes, without=options.without)
    figures = {
        "seed": options.seed,
        "load": round(load_before, 1),
        "without": options.without,
        "rows": [asdict(row) for row in rows],
    }
    return report(figures, list(goals_of(rows)), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
