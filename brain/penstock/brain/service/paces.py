"""How fast a job would be with another number of workers, by what the Brain plans with.

A number of workers that was measured makes what it made. Of others the planners' bound is told
(`penstock.brain.algorithms.to_objective`): more workers never make more per worker. So fewer make
at least their part of the present speed, and at most all of it; more make at most their part. That
more make no less than now is usual and not certain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.steps_left import steps_left
from penstock.brain.algorithms.scale_allreduce import Measured, ScaleAllReduceParams, measure
from penstock.brain.history import SampleRecord
from penstock.brain.planning import History, Sample
from penstock.brain.registration import Registration
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.samples import Samples

MOST_SAMPLES: Final = 500
_SIGMAS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Range:
    """A figure, and between what it is expected to be."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Range:
        """So many times as much."""
        return Range(self.value * factor, self.low * factor, self.high * factor)

    def into(self, amount: float) -> Range | None:
        """How long an amount takes at this speed; None where it may be none at all."""
        if self.low <= 0:
            return None
        return Range(amount / self.value, amount / self.high, amount / self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The speed of one job: at its present number of workers, and at others that were measured.

    `steps_left` is None where the job does not say how many it has.
    """

    now: Measured
    measured: Mapping[int, Measured]
    steps_left: int | None

    def at(self, workers: int) -> Range:
        """Steps per second with so many workers."""
        known = self.measured.get(workers)
        if known is not None and known.settled:
            error = _SIGMAS * known.error
            return Range(known.speed, max(0.0, known.speed - error), known.speed + error)
        error = _SIGMAS * self.now.error
        low, high = max(0.0, self.now.speed - error), self.now.speed + error
        part = workers / self.now.workers
        value = self.now.speed * part
        return Range(value, low * part, high) if part < 1 else Range(value, low, high * part)


class PaceService:
    """The paces of one Brain's jobs."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float],
        measuring: Callable[[], ScaleAllReduceParams] = ScaleAllReduceParams,
    ) -> None:
        """`measuring`: the parameters of `scale_allreduce` as they are configured now."""
        self._database = database
        self._clock = clock
        self._measuring = measuring

    async def pace(self, uid: str) -> Pace | None:
        """The speed of a job; None while nothing that lasts was measured.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        now = self._clock()
        measuring = self._measuring()
        async with self._database.read() as session:
            job = await Jobs(self._database, session).get(uid)
            records = await Samples(self._database, session).records(
                uid, now - measuring.window_seconds, MOST_SAMPLES
            )
        total = Registration.parse(job.description).description.total_steps
        return await asyncio.to_thread(_pace, records, now, total, measuring)


def _pace(
    records: tuple[SampleRecord, ...],
    now: float,
    total: int | None,
    measuring: ScaleAllReduceParams,
) -> Pace | None:
    if not records:
        return None
    history = History(now_seconds=now, samples=tuple(map(_sample, records)))
    measured = measure(history, measuring)
    newest = records[-1]
    present = measured.get(newest.world_size)
    if present is None or not present.settled:
        return None
    left = None if total is None else steps_left(newest.step, total)
    return Pace(now=present, measured=measured, steps_left=left)


def _sample(record: SampleRecord) -> Sample:
    """Without its ranks, which say nothing of the speed and are most of the work to read."""
    return Sample(
        time_seconds=record.at_seconds,
        interval_seconds=record.interval_seconds,
        step=record.step,
        steps_per_second=record.steps_per_second,
        samples_per_second=record.samples_per_second,
        world_size=record.world_size,
    )
