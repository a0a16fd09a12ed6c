"""Keeps the store small: sums samples up, then deletes what has been kept long enough.

Level-triggered: a minute is summed up again whenever samples of it have come in since, also late
ones, so doing it twice, or in two Brains, is harmless. After a restart the last twenty minutes are
looked at again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from penstock.brain.configuration import RetentionSettings
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.model.rollups import MINUTE, TEN_MINUTES, Rollup, merge, start_of
from penstock.brain.store.database import Database
from penstock.brain.store.retention import expire
from penstock.brain.store.rollups import Rollups, summed

logger = logging.getLogger(__name__)
_OVERLAP_SECONDS: Final = 1200.0
_JOBS_AT_A_TIME: Final = 25
_MOST_BATCHES: Final = 200


class Sweeper:
    """Runs until cancelled."""

    def __init__(
        self,
        database: Database,
        settings: RetentionSettings,
        clock: Callable[[], float],
        metrics: BrainMetrics,
    ) -> None:
        self._metrics = metrics
        self._database = database
        self._settings = settings
        self._clock = clock
        self._swept_until: float | None = None
        self._open: set[tuple[str, float]] = set()
        """Ten-minute intervals with new samples that are not over yet."""

    def configure(self, settings: RetentionSettings) -> None:
        """Take over another retention."""
        self._settings = settings

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            try:
                async with asyncio.timeout(600):
                    await self.sweep()
            except (SQLAlchemyError, OSError, TimeoutError) as error:
                self._metrics.failures.labels("sweeper").inc()
                logger.error("sweeping: %s: %s; trying again", type(error).__name__, error)
            except Exception:
                self._metrics.failures.labels("sweeper").inc()
                logger.exception("sweeping: fault in the Brain; trying again")
            await asyncio.sleep(self._settings.sweep_seconds)

    async def sweep(self) -> None:
        """Sum up what is new, and delete what is old."""
        now = self._clock()
        await self._sum_up(now)
        for _ in range(_MOST_BATCHES):
            async with self._database.write() as session:
                deleted = await expire(session, self._settings, now)
            if not deleted:
                break
            await asyncio.sleep(0)

    async def _sum_up(self, now: float) -> None:
        if self._swept_until is None:
            async with self._database.read() as session:
                newest = await Rollups(self._database, session).newest_received()
            self._swept_until = (newest or 0.0) - _OVERLAP_SECONDS
        # A transaction that began earlier may still be committing with an earlier time.
        until = now - 1.0
        async with self._database.read() as session:
            touched = await Rollups(self._database, session).touched(self._swept_until, until)
        minutes: dict[str, set[float]] = {}
        for uid, at in touched:
            minutes.setdefault(uid, set()).add(start_of(at, MINUTE))
        for uids in _batched(sorted(minutes), _JOBS_AT_A_TIME):
            await self._sum_up_minutes({uid: minutes[uid] for uid in uids}, now)
        for uid, starts in minutes.items():
            self._open |= {(uid, start_of(start, TEN_MINUTES)) for start in starts}
        await self._sum_up_ten_minutes(now)
        self._swept_until = until

    async def _sum_up_minutes(self, minutes: dict[str, set[float]], now: float) -> None:
        async with self._database.read() as session:
            rollups = Rollups(self._database, session)
            found = {
                uid: await rollups.samples(uid, min(starts) - MINUTE, max(starts) + MINUTE)
                for uid, starts in minutes.items()
            }
            since = {uid: min(starts) for uid, starts in minutes.items()}
            peaks = await rollups.peaks(since)
        sums = await asyncio.to_thread(
            lambda: {
                uid: summed(samples, since[uid], peaks.get(uid, 0))
                for uid, samples in found.items()
            }
        )
        fresh: list[tuple[str, float, Rollup]] = []
        late: list[tuple[str, float, Rollup]] = []
        for uid, starts in minutes.items():
            by_minute: dict[float, list[Rollup]] = {}
            for at, rollup in sums[uid]:
                by_minute.setdefault(start_of(at, MINUTE), []).append(rollup)
            for start in sorted(starts & by_minute.keys()):
                # Of an old minute most samples may be gone: what was summed up then is better.
                whole = start >= now - self._settings.raw_seconds / 2
                (fresh if whole else late).append((uid, start, merge(by_minute[start])))
        async with self._database.write() as session:
            rollups = Rollups(self._database, session)
            await rollups.put(MINUTE, fresh)
            await rollups.put(MINUTE, late, replace=False)

    async def _sum_up_ten_minutes(self, now: float) -> None:
        over = sorted(
            (uid, start) for uid, start in self._open if start + TEN_MINUTES + MINUTE <= now
        )
        for part in _batched(over, 200):
            async with self._database.read() as session:
                rollups = Rollups(self._database, session)
                sums = [
                    (uid, start, merge(rows))
                    for uid, start in part
                    if (rows := await rollups.minutes(uid, start, start + TEN_MINUTES))
                ]
            async with self._database.write() as session:
                await Rollups(self._database, session).put(TEN_MINUTES, sums)
            self._open -= set(part)


T = TypeVar("T")


def _batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
