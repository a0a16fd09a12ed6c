"""What a job with a budget has cost and goes on to cost, from the store, for those who plan.

The sum lags by up to a minute, as bills do (`penstock.brain.service.costs`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

from penstock.base.enums import Role
from penstock.base.steps_left import steps_left
from penstock.brain.configuration import PriceSettings
from penstock.brain.history import SampleRecord
from penstock.brain.model.prices import priced
from penstock.brain.model.robust_statistics import robust_sigma
from penstock.brain.model.spent import GIB, Spent, load, of_columns, total
from penstock.brain.planning import JobDescription, Prediction, RolePods, Sample, Spending
from penstock.brain.rank_columns import unpack
from penstock.brain.store.database import Database
from penstock.brain.store.rollups import spent_pages

ENOUGH_SAMPLES: Final = 3
MOST_SAMPLES: Final = 40
"""Of the newest samples at the present number of workers the speed is the median."""
_LEAST_ERROR: Final = 0.05
_NINETY: Final = 1.645 * 1.25
"""Of a median's standard error; nine in ten lie within."""


async def spending_of(
    database: Database,
    job: JobDescription,
    samples: Sequence[SampleRecord],
    prices: PriceSettings | None,
    now: float,
) -> Spending | None:
    """What goes into the cost of a job; None without a budget or prices."""
    if job.budget is None or prices is None:
        return None
    amount = priced(await _spent(database, job.uid, now), prices)
    assert amount is not None, "there are prices"
    newest = samples[-1] if samples else None
    done = newest.step if newest else 0
    return Spending(
        currency=prices.currency,
        core_hour=prices.core_hour,
        gib_hour=prices.gib_hour,
        accelerator_hour=prices.accelerator_hour,
        spent=amount.cost,
        pods={} if newest is None else _pods(newest),
        steps_left=None if job.total_steps is None else steps_left(done, job.total_steps),
        prediction=speed(samples),
    )


def speed(samples: Sequence[SampleRecord | Sample]) -> Prediction | None:
    """The speed at the present number of workers; None while it is not known.

    The first sample after a change mixes two numbers with a restart: it is left out.
    """
    own: list[float] = []
    for sample in reversed(samples):
        if sample.world_size != samples[-1].world_size:
            own = own[:-1]
            break
        own.append(sample.steps_per_second)
        if len(own) == MOST_SAMPLES:
            break
    if len(own) < ENOUGH_SAMPLES or (centre := median(own)) <= 0:
        return None
    error = _NINETY * robust_sigma(own) / math.sqrt(len(own))
    return Prediction(
        steps_per_second=centre, error_steps_per_second=max(error, _LEAST_ERROR * centre)
    )


async def _spent(database: Database, uid: str, now: float) -> Spent:
    parts: list[Spent] = []
    async with database.read_pages() as session:
        async for page in spent_pages(session, 0.0, now, uids=[uid]):
            parts += [total(load(row.spent).values()) for row in page]
    return total(parts)


def _pods(sample: SampleRecord) -> dict[Role, RolePods]:
    found = {}
    for role, columns in unpack(sample.ranks).items():
        given = of_columns(columns, 1.0)
        if count := len(columns["rank"]):
            found[role] = RolePods(
                count=count,
                milli_cpu=1000 * given.core_seconds / count,
                memory_bytes=GIB * given.gib_seconds / count,
                accelerators=given.accelerator_seconds / count,
            )
    return found
