"""How long a job would take and what it would cost, from those like it that have succeeded.

The figures are of whole jobs: from their registration, when their trainer was there, to their end,
and what their pods had been given until then. When a job would start is not told: the Brain does
not know who waits for which node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import Strategy
from penstock.brain.model.forecast import Estimate, Finished, Forecaster
from penstock.brain.model.spent import Spent, load, total
from penstock.brain.planning import Signature
from penstock.brain.service.costs import CostService
from penstock.brain.store.database import Database
from penstock.brain.store.past_jobs import PastJobs, signature_of
from penstock.brain.store.rollups import spent_pages
from penstock.brain.store.tables import JobRow

LOOK_BACK_SECONDS: Final = 28 * 86_400.0
"""Jobs that ended before that do not count."""
MOST_JOBS: Final = 2000
"""Of more jobs the newest count."""
MOST_SUMMED: Final = 400
"""Jobs of which it is summed up what they were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is to be expected of a job; None: nothing like it is known.

    Attributes:
        seconds: from its registration to its end.
        core_seconds, gib_seconds, accelerator_seconds: that its pods will be given.
        cost: in `currency`; None without prices, too.
        finished_jobs: that share any part of its signature.
    """

    seconds: Estimate | None
    core_seconds: Estimate | None
    gib_seconds: Estimate | None
    accelerator_seconds: Estimate | None
    cost: Estimate | None
    currency: str | None
    finished_jobs: int


class ForecastService:
    """The forecasts of one Brain."""

    def __init__(self, database: Database, costs: CostService, clock: Callable[[], float]) -> None:
        """``costs``: has the prices."""
        self._database = database
        self._costs = costs
        self._clock = clock

    async def forecast(
        self, signature: Signature, strategy: Strategy, namespace: str | None
    ) -> Forecast:
        """What is to be expected of a job; ``namespace``: of which jobs count, None: of all."""
        now = self._clock()
        async with self._database.read_pages() as session:
            jobs = await PastJobs(session).succeeded(
                signature, strategy, now - LOOK_BACK_SECONDS, MOST_JOBS, namespace
            )
            sums: dict[str, list[Spent]] = {}
            newest = [job.uid for job in jobs[:MOST_SUMMED]]
            if newest:
                async for page in spent_pages(session, 0.0, now, uids=newest):
                    for row in page:
                        sums.setdefault(row.uid, []).append(total(load(row.spent).values()))
        spent = {uid: total(parts) for uid, parts in sums.items()}
        return await asyncio.to_thread(self._expected, signature, jobs, spent)

    def _expected(
        self, signature: Signature, jobs: list[JobRow], spent: Mapping[str, Spent]
    ) -> Forecast:
        """Not on the event loop: thousands of jobs take most of a second."""
        amounts = {uid: self._costs.amount(one) for uid, one in spent.items()}

        def of(values: Mapping[str, float]) -> Estimate | None:
            return _learned(jobs, values).estimate(signature)

        return Forecast(
            seconds=of({job.uid: _seconds(job) for job in jobs}),
            core_seconds=of({uid: one.core_seconds for uid, one in spent.items()}),
            gib_seconds=of({uid: one.gib_seconds for uid, one in spent.items()}),
            accelerator_seconds=of({uid: one.accelerator_seconds for uid, one in spent.items()}),
            cost=of({uid: one.cost for uid, one in amounts.items() if one is not None}),
            currency=self._costs.currency,
            finished_jobs=len(jobs),
        )


def _learned(jobs: list[JobRow], values: Mapping[str, float]) -> Forecaster:
    return Forecaster.of(
        Finished(
            signature_of(job),
            job.registered_seconds,
            job.finished_seconds or job.last_seen_seconds,
            values[job.uid],
        )
        for job in jobs
        if job.uid in values
    )


def _seconds(job: JobRow) -> float:
    return (job.finished_seconds or job.last_seen_seconds) - job.registered_seconds
