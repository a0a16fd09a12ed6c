"""Many jobs on a cluster that cannot give each what it wants: planned alone, and with a price.

*Alone* is what happens without a price: each job gets the configuration that is best for it alone,
or the fastest one that still fits, in the order in which they came; who finds no room waits. The
priced plan has to make the same work: it sees what a planner knows, and is measured by what is
true. How work of different jobs is added up decides what is gained, so there are two ways:

- ``price``: a unit of a job's work is worth what it costs in the job's cheapest configuration.
  Work then moves only to where it is made for less.
- ``share``: a job at its full speed counts 1, whatever its size. Small jobs are then preferred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Final

import numpy as np

from penstock.brain.pricing.exact import optimum
from penstock.brain.pricing.filling import SLACK
from penstock.brain.pricing.greedy import allocate
from penstock.brain.pricing.problem import (
    Allocation,
    Option,
    PricedJob,
    Prices,
    Resources,
    Room,
    useful,
)
from penstock.sim.pricing.jobs import KnownJob, random_job
from penstock.sim.report.goals import Goal, at_least, at_most

CONTENDED: Final = 0.5
"""The cluster's size, as a part of what all jobs want, for which there are goals."""
CAPACITIES: Final = (1.0, 0.75, CONTENDED, 0.33)
WORTHS: Final = ("price", "share")
QUEUES: Final = 10
QUOTA: Final = 0.2
"""Of the cluster, that one queue may have."""
EIGHT: Final = 8
"""Jobs of the larger of the small cases."""
MARGIN: Final = 0.01
"""By so much more work than alone is planned for, as what is known of throughputs is not exact."""


@dataclass(frozen=True, slots=True)
class Row:
    """One cluster: costs an hour, true work as a part of all jobs at the speed they have alone.

    `least_share` is the least part of its own speed alone that a job has in the priced plan.
    """

    worth: str
    capacity: float
    alone_running: int
    alone_work: float
    alone_cost: float
    running: int
    work: float
    cost: float
    saved: float
    least_share: float


@dataclass(frozen=True, slots=True)
class Small:
    """Small cases of one kind: what the greedy misses of the optimum, as a part of it."""

    wanted: str
    jobs: str
    cases: int
    exact: int
    median_gap: float
    worst_gap: float


def jobs_of(count: int, seed: int, prices: Prices, processes: int = 1) -> list[KnownJob]:
    """The jobs of a seed."""
    one = partial(random_job, seed=seed, prices=prices)
    if processes == 1:
        return [one(index) for index in range(count)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(one, range(count), chunksize=8))


def priced_jobs(jobs: Sequence[KnownJob], worth: str, seed: int) -> list[PricedJob]:
    """The jobs with a queue and a priority of 0, 1 or 2 each, and what their work is worth."""
    rng = np.random.default_rng([seed, 4])
    return [
        PricedJob(
            name=job.name,
            options=useful(job.options),
            weight=_weight(job, worth),
            priority=int(rng.integers(3)),
            queue=f"queue-{rng.integers(QUEUES)}",
        )
        for job in jobs
    ]


def _weight(job: KnownJob, worth: str) -> float:
    if worth == "share":
        return 1 / job.alone.throughput
    return min(option.cost_per_hour / option.throughput for option in job.options)


def room_of(jobs: Sequence[KnownJob], part: float) -> Room:
    """A cluster with a part of what all jobs want alone; its queues have equal quotas."""
    whole = _sum([job.alone for job in jobs])
    capacity = _part(whole, part)
    quotas = {f"queue-{index}": _part(capacity, QUOTA) for index in range(QUEUES)}
    return Room(capacity=capacity, quotas=quotas)


def row_of(jobs: Sequence[KnownJob], worth: str, capacity: float, seed: int) -> Row:
    """One cluster, with both plans."""
    priced = priced_jobs(jobs, worth, seed)
    room = room_of(jobs, capacity)
    alone = planned_alone(jobs, priced, room)
    truths = [
        job.weight * known.true[option.name] if option else 0.0
        for known, job, option in zip(jobs, priced, alone, strict=True)
    ]
    made = math.fsum(truths)
    wanted = made * (1 + MARGIN)
    plan = allocate(priced, Room(capacity=room.capacity, quotas=room.quotas, work=wanted))
    full = math.fsum(
        job.weight * known.true[known.alone.name] for known, job in zip(jobs, priced, strict=True)
    )
    shares = [
        known.true[one.option.name] / known.true[known.alone.name] if one.option else 0.0
        for known, one in zip(jobs, plan.allotments, strict=True)
    ]
    alone_cost = math.fsum(option.cost_per_hour for option in alone if option)
    return Row(
        worth=worth,
        capacity=capacity,
        alone_running=sum(option is not None for option in alone),
        alone_work=round(made / full, 4),
        alone_cost=round(alone_cost, 2),
        running=len(jobs) - len(plan.waiting),
        work=round(_true_work(jobs, plan) / full, 4),
        cost=round(plan.cost_per_hour, 2),
        saved=round(1 - plan.cost_per_hour / alone_cost, 4),
        least_share=round(min(shares), 4),
    )


def rows_of(jobs: Sequence[KnownJob], seed: int) -> list[Row]:
    """Clusters of all sizes, and both ways to add work up."""
    return [row_of(jobs, worth, part, seed) for worth in WORTHS for part in CAPACITIES]


def _true_work(jobs: Sequence[KnownJob], plan: Allocation) -> float:
    return math.fsum(
        one.job.weight * known.true[one.option.name]
        for known, one in zip(jobs, plan.allotments, strict=True)
        if one.option
    )


def planned_alone(
    jobs: Sequence[KnownJob], priced: Sequence[PricedJob], room: Room
) -> list[Option | None]:
    """What each job gets where none knows of the others: by priority, then as they came."""
    left = {"": list(room.capacity.amounts())} if room.capacity else {}
    left |= {queue: list(quota.amounts()) for queue, quota in room.quotas.items()}
    chosen: list[Option | None] = [None] * len(jobs)
    for index in sorted(range(len(jobs)), key=lambda index: -priced[index].priority):
        known, job = jobs[index], priced[index]
        slower = [one for one in job.options if one.throughput < known.alone.throughput]
        bounds = [left[name] for name in ("", job.queue) if name in left]
        for option in (known.alone, *sorted(slower, key=lambda one: -one.throughput)):
            amounts = option.resources.amounts()
            if all(own <= free for rest in bounds for own, free in zip(amounts, rest, strict=True)):
                chosen[index] = option
                for rest in bounds:
                    rest[:] = [free - own for own, free in zip(amounts, rest, strict=True)]
                break
    return chosen


def smalls_of(jobs: Sequence[KnownJob], cases: int, seed: int) -> list[Small]:
    """Cases of a few of the jobs with at most six options each, against the optimum.

    Of six jobs the plan is one group of `penstock.brain.pricing.regrouping`, which tries all there
    is; of `EIGHT` it is not, and says what groups miss. The optimum of those takes a second, so
    there is one for `EIGHT` cases of the others.
    """
    few = _smalls([_small_case(jobs, (4, 6), seed, case, 5) for case in range(cases)], "4 to 6")
    many = range(cases // EIGHT)
    return few + _smalls([_small_case(jobs, (EIGHT, EIGHT), seed, case, 6) for case in many], "8")


def _small_case(
    jobs: Sequence[KnownJob], sizes: tuple[int, int], seed: int, case: int, stream: int
) -> tuple[float, float]:
    """What the greedy misses of the most work, and of the least cost of a part of it."""
    rng = np.random.default_rng([seed, case, stream])
    size = rng.integers(sizes[0], sizes[1] + 1)
    few = [_few(jobs[index], rng) for index in rng.integers(len(jobs), size=size)]
    worth = WORTHS[case % 2]
    priced = priced_jobs(few, worth, seed + case)
    room = room_of(few, float(rng.uniform(0.35, 0.9)))
    quotas = {queue: _part(room.capacity or Resources(), 0.6) for queue in room.quotas}
    room = Room(capacity=room.capacity, quotas=quotas)
    top = optimum(priced, room)
    if top is None:  # the least of each is one plan that fits, so there is a best
        raise AssertionError("no plan fits")
    missed = 1 - allocate(priced, room).work / top.work
    wanted = Room(
        capacity=room.capacity, quotas=quotas, work=top.work * float(rng.uniform(0.7, 0.98))
    )
    least, found = optimum(priced, wanted), allocate(priced, wanted)
    if least is None:
        raise AssertionError("less than the most work cannot be made")
    dearer = found.cost_per_hour / least.cost_per_hour - 1 if found.reached else math.inf
    return missed, dearer


def _smalls(gaps: Sequence[tuple[float, float]], jobs: str) -> list[Small]:
    return [
        Small(
            wanted=wanted,
            jobs=jobs,
            cases=len(found),
            exact=sum(gap <= 2 * SLACK for gap in found),
            median_gap=round(median(found), 6),
            worst_gap=round(max(found), 6),
        )
        for wanted, found in zip(("most work", "least cost"), zip(*gaps, strict=True), strict=False)
    ]


def _few(job: KnownJob, rng: np.random.Generator) -> KnownJob:
    """The job with at most six of its options."""
    options = job.options
    if len(options) > 6:
        kept = sorted(rng.choice(len(options), size=6, replace=False))
        options = tuple(options[index] for index in kept)
    return KnownJob(job.name, options, job.alone, job.true)


def goals_of(rows: Sequence[Row], smalls: Sequence[Small], jobs: int) -> list[Goal]:
    """20 % less cost at the same work, within 3 % of the optimum, no job starved."""
    goals = []
    for row in rows:
        if row.capacity == CONTENDED:
            goals += [
                at_least(f"{row.worth}: cost saved", 0.2, row.saved),
                at_least(f"{row.worth}: work over that alone", 1.0, row.work / row.alone_work),
            ]
    goals += [
        at_most(f"{one.wanted}, {one.jobs} jobs: worst gap", 0.03, one.worst_gap) for one in smalls
    ]
    goals.append(at_least("jobs that have their least", jobs, min(row.running for row in rows)))
    return goals


def _sum(options: Sequence[Option]) -> Resources:
    amounts = [option.resources.amounts() for option in options]
    cpu, memory, accelerators = (sum(column) for column in zip(*amounts, strict=True))
    return Resources(milli_cpu=cpu, memory_bytes=memory, accelerators=accelerators)


def _part(whole: Resources, part: float) -> Resources:
    cpu, memory, accelerators = (math.ceil(part * amount) for amount in whole.amounts())
    return Resources(milli_cpu=cpu, memory_bytes=memory, accelerators=accelerators)
