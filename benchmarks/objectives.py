"""What the same jobs take and cost for each objective, and under a budget.

``python -m benchmarks.objectives --json``

Random AllReduce jobs in simulated time, each trained five times from one worker: without an
objective, Fastest, Cheapest, Deadline, and Fastest with a budget. Their speed is 10 steps/s for one
worker and follows Amdahl's law with a serial part of 0.5 to 5 %, which the Brain does not know; it
sees a sample every 15 s, with noise of 1 to 4 %, and is asked every minute; its algorithms run in
the order and under the checks of the Brain. A change of the workers stops the training for a minute
that is paid. The deadline is 1.5 times what Fastest took, the budget lies halfway between what
Cheapest and Fastest cost. Prices are the example of the Brain's configuration; what is reported is
true time and cost.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from os import getloadavg
from statistics import median
from typing import Final

import numpy as np

from benchmarks.goals import Goal, at_least, at_most, report
from penstock.base.enums import Objective, Role, Stage, Strategy
from penstock.brain.control.planner import WINDOW_SECONDS
from penstock.brain.control.spending import speed
from penstock.brain.planning import (
    AppliedPlan,
    History,
    JobDescription,
    Limits,
    RankSample,
    RolePlan,
    RolePods,
    RoleSpec,
    Sample,
    Spending,
)
from penstock.brain.registry import load
from penstock.brain.stages import DEFAULT_POLICIES
from penstock.sim.ps.planners import BrainPlanner

CORE_HOUR, GIB_HOUR, ACCELERATOR_HOUR = 0.03, 0.004, 2.4
CORES, GIB, ACCELERATORS = 8, 32, 1
"""Of a worker."""
HOURLY: Final = CORES * CORE_HOUR + GIB * GIB_HOUR + ACCELERATORS * ACCELERATOR_HOUR
MOST_WORKERS: Final = 32
STEPS: Final = 400_000
"""Eleven hours on one worker."""
CHANGE_SECONDS: Final = 60.0
DEADLINE_SLACK: Final = 1.5
BUDGET_SHARE: Final = 0.5
_LONGEST_SECONDS: Final = 10 * STEPS / 10

MODES: Final = ("none", "fastest", "cheapest", "deadline", "budget")


@dataclass(frozen=True, slots=True)
class World:
    """What a job is like, unknown to the Brain."""

    job: int
    serial: float
    noise: float


@dataclass(frozen=True, slots=True)
class Row:
    """One training: true time and cost, and whether its limit was kept (None: it has none)."""

    job: int
    mode: str
    seconds: float
    cost: float
    workers: int
    changes: int
    limit: float | None = None
    kept: bool | None = None


def world_of(job: int, seed: int) -> World:
    """One of the random jobs."""
    rng = np.random.default_rng([seed, job])
    return World(job, float(rng.uniform(0.005, 0.05)), float(rng.uniform(0.01, 0.04)))


def trained(
    world: World,
    mode: str,
    seed: int,
    objective: Objective | None = None,
    *,
    deadline: float | None = None,
    budget: float | None = None,
) -> Row:
    """A job from its first step to its last."""
    rng = np.random.default_rng([seed, world.job, MODES.index(mode)])
    planner = BrainPlanner(load(), DEFAULT_POLICIES[Strategy.ALL_REDUCE])
    description = JobDescription(
        uid=f"job-{world.job}",
        strategy=Strategy.ALL_REDUCE,
        roles={Role.WORKER: RoleSpec(maximum=MOST_WORKERS, milli_cpu=1000 * CORES)},
        total_steps=STEPS,
        objective=objective,
        deadline_seconds=deadline,
        budget=budget,
    )
    workers, now, done, cost = 1, 0.0, 0.0, 0.0
    plans = [_applied(workers, Stage.CREATE, now)]
    samples: list[Sample] = []
    while done < STEPS and now < _LONGEST_SECONDS:
        for _ in range(4):
            true = 10 * workers / (1 + world.serial * (workers - 1))
            seconds = min(15.0, (STEPS - done) / true)
            now, done = now + seconds, done + seconds * true
            cost += seconds / 3600 * workers * HOURLY
            seen = true * float(rng.lognormal(0, world.noise))
            samples.append(_sample(workers, seen, now, int(done)))
            if done >= STEPS:
                break
        kept = tuple(one for one in samples if one.time_seconds >= now - WINDOW_SECONDS)
        history = History(
            now_seconds=now,
            samples=kept,
            plans=tuple(plans),
            spending=None if budget is None else _spending(kept, workers, cost, done),
        )
        made = planner(history, description, Limits()) if done < STEPS else None
        count = None if made is None else made.roles.get(Role.WORKER, RolePlan()).replicas
        if made is None or count is None:
            continue
        workers, now = count, now + CHANGE_SECONDS
        cost += CHANGE_SECONDS / 3600 * workers * HOURLY
        plans.append(_applied(workers, made.stage, now, made.reason))
    limit = deadline if deadline is not None else budget
    spent = now if deadline is not None else cost
    return Row(
        job=world.job,
        mode=mode,
        seconds=round(now, 1),
        cost=round(cost, 3),
        workers=workers,
        changes=len(plans) - 1,
        limit=None if limit is None else round(limit, 3),
        kept=None if limit is None else spent <= limit,
    )


def compared(job: int, seed: int) -> list[Row]:
    """One job, five times."""
    world = world_of(job, seed)
    none = trained(world, "none", seed)
    fast = trained(world, "fastest", seed, Objective.FASTEST)
    cheap = trained(world, "cheapest", seed, Objective.CHEAPEST)
    limit = DEADLINE_SLACK * fast.seconds
    late = trained(world, "deadline", seed, Objective.DEADLINE, deadline=limit)
    amount = cheap.cost + BUDGET_SHARE * (fast.cost - cheap.cost)
    bound = trained(world, "budget", seed, Objective.FASTEST, budget=amount)
    return [none, fast, cheap, late, bound]


def goals_of(rows: Sequence[Row]) -> Iterable[Goal]:
    """Each does what it says, and no more of the other than it has to."""
    by = {mode: {row.job: row for row in rows if row.mode == mode} for mode in MODES}
    jobs = sorted(by["none"])
    for mode in ("deadline", "budget"):
        kept = sum(bool(by[mode][job].kept) for job in jobs)
        yield at_least(f"{mode}: share of jobs that keep it", 1.0, kept / len(jobs))
    slower = max(by["fastest"][j].seconds / min(by[m][j].seconds for m in MODES) for j in jobs)
    yield at_most("fastest: its time over the best of the five, at worst", 1.05, slower)
    dearer = max(by["cheapest"][j].cost / min(by[m][j].cost for m in MODES) for j in jobs)
    yield at_most("cheapest: its cost over the best of the five, at worst", 1.01, dearer)
    saved = median(by["deadline"][j].cost / by["fastest"][j].cost for j in jobs)
    yield at_most("deadline: its cost over fastest, median", 1.0, saved)
    quicker = median(by["budget"][j].seconds / by["cheapest"][j].seconds for j in jobs)
    yield at_most("budget: its time over cheapest, median", 0.5, quicker)


def rows_of(jobs: int, seed: int, processes: int) -> list[Row]:
    """All jobs."""
    one = partial(compared, seed=seed)
    if processes == 1:
        return [row for found in map(one, range(jobs)) for row in found]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return [row for found in pool.map(one, range(jobs)) for row in found]


def _spending(samples: Sequence[Sample], workers: int, cost: float, done: float) -> Spending:
    pods = RolePods(
        count=workers,
        milli_cpu=1000.0 * CORES,
        memory_bytes=GIB * 1024.0**3,
        accelerators=ACCELERATORS,
    )
    return Spending(
        currency="EUR",
        core_hour=CORE_HOUR,
        gib_hour=GIB_HOUR,
        accelerator_hour=ACCELERATOR_HOUR,
        spent=cost,
        pods={Role.WORKER: pods},
        steps_left=max(0, int(STEPS - done)),
        prediction=speed(samples),
    )


def _applied(workers: int, stage: Stage, at: float, reason: str = "") -> AppliedPlan:
    return AppliedPlan(
        applied_seconds=at,
        roles={Role.WORKER: RolePlan(replicas=workers)},
        stage=stage,
        reason=reason,
        settled_seconds=at,
    )


def _sample(workers: int, seen: float, at: float, step: int) -> Sample:
    one = RankSample(milli_cpu=800.0 * CORES, milli_cpu_limit=1000 * CORES)
    return Sample(
        time_seconds=at,
        step=step,
        steps_per_second=seen,
        world_size=workers,
        roles={Role.WORKER: dict.fromkeys(range(workers), one)},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    load_before = round(getloadavg()[0], 1)
    rows = rows_of(options.jobs, options.seed, options.processes)
    figures = {
        "seed": options.seed,
        "load": load_before,
        "jobs": options.jobs,
        "rows": [asdict(row) for row in rows],
    }
    return report(figures, list(goals_of(rows)), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
