"""tf.data service's Figures 9 and 10 and its equation 1, computed beside what was published.

All figures are of SoCC 23, sections 4.1 to 4.3. The paper does not agree with itself in two places,
which no model can mend: 16 workers deliver 0.64 batches a second in its text and 1.14 times 0.55 in
the same sentence, and no one rate a worker is nearer than 5.4 % to all four points; and the pool of
mode B delivers 8.7 batches a second to 8 jobs and 10.2 to 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.sim.report.goals import Goal, at_most, near
from penstock.sim.sharing.world import Group, World
from penstock.throughput.decision.cost import Prices, cost_of

PER_WORKER: Final = 0.037
"""Batches a second of M1 that a data worker makes."""
IDEAL: Final = 6.77
"""That the accelerators take: 12.3 times 0.55."""
RATES: Final = {8: 0.30, 16: 0.64, 64: 2.3, 128: 4.77, 512: 6.77, 640: 6.77}
_NEAR: Final = 0.05
_ODD: Final = {16: 0.08}
"""Where the paper's points cannot all be met."""

PRICES: Final = Prices(client=4.5, worker=0.08)
"""Of a TPU v2-8 and an n2-standard-8, dollars an hour."""
STEPS: Final = 112_320
DOLLARS: Final = {"colocated": (1.75, 0), "16 workers, a dispatcher": (4.5, 17)}
"""Of ResNet-50: steps a second, and machines beside the training."""
PUBLISHED_DOLLARS: Final = {"total, colocated": 80.2, "training": 31.2, "service": 9.4}

JOBS: Final = (1, 2, 4, 8, 16)
POOL: Final = math.sqrt(8 * 1.09 * 16 * 0.64)
"""Batches a second of mode B's 128 workers: between what the paper's two points say."""
WANTED: Final = 1.92
"""Batches a second that a job of M4 takes."""
SLOWER: Final = {8: 1.75, 16: 3.0}
_POOL_NEAR: Final = 0.09


@dataclass(frozen=True, slots=True)
class RateRow:
    """A point of Figure 9."""

    workers: int
    batches_per_second: float
    published: float
    error: float


@dataclass(frozen=True, slots=True)
class CostRow:
    """A point of Figure 10: the cost of making, by that of one job, and times a job takes.

    ``shared`` is what our rule makes for so many jobs of one speed, simulated.
    """

    jobs: int
    shared: float
    unshared: float
    dedicated: float
    job_time_unshared: float
    published_job_time: float | None


@dataclass(frozen=True, slots=True)
class DollarRow:
    """One of equation 1's dollars."""

    what: str
    dollars: float
    published: float


def figure_9() -> list[RateRow]:
    """M1 with more and more data workers."""
    rows = []
    for workers, published in RATES.items():
        rate = min(workers * PER_WORKER, IDEAL)
        error = round(rate / published - 1, 4)
        rows.append(RateRow(workers, round(rate, 3), published, error))
    return rows


def figure_10(seed: int, jobs: Sequence[int] = JOBS) -> list[CostRow]:
    """One pool with sharing, one without, and one for each job."""
    rows = []
    for number in jobs:
        slower = max(1.0, number * WANTED / POOL)
        made = World(replace(Group(number, seed=seed), epochs=2)).run().made
        rows.append(
            CostRow(
                jobs=number,
                shared=round(made, 3),
                unshared=round(slower, 3),
                dedicated=float(number),
                job_time_unshared=round(slower, 3),
                published_job_time=SLOWER.get(number),
            )
        )
    return rows


def dollars() -> list[DollarRow]:
    """ResNet-50 for its 112,320 steps, with the service and without."""
    (alone, _), (fed, machines) = DOLLARS.values()
    colocated = cost_of(STEPS, alone, PRICES, clients=1, workers=0)
    service = cost_of(STEPS, fed, PRICES, clients=1, workers=machines)
    found = {
        "total, colocated": colocated.total,
        "training": service.clients,
        "service": service.workers,
    }
    return [
        DollarRow(what, round(found[what], 2), published)
        for what, published in PUBLISHED_DOLLARS.items()
    ]


def goals_9() -> list[Goal]:
    """Of Figure 9 and equation 1."""
    goals = [
        near(
            f"batches a second, {row.workers} workers",
            row.published,
            row.batches_per_second,
            _ODD.get(row.workers, _NEAR),
        )
        for row in figure_9()
    ]
    goals += [near(f"dollars, {row.what}", row.published, row.dollars, 0.01) for row in dollars()]
    return goals


def goals_10(rows: Sequence[CostRow]) -> list[Goal]:
    """Of Figure 10."""
    goals = [at_most("cost of making, shared", 1.0, max(row.shared for row in rows))]
    goals += [
        near(
            f"job time without sharing, {row.jobs} jobs",
            row.published_job_time,
            row.job_time_unshared,
            _POOL_NEAR,
        )
        for row in rows
        if row.published_job_time is not None
    ]
    fed = max(row.jobs for row in rows if row.job_time_unshared <= 1)
    goals.append(near("jobs that one pool feeds", 4, fed, 0))
    return goals
