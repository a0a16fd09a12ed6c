"""Every query on roll-ups, and on the samples that they are made from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Result, Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased
from sqlmodel import col

from penstock.brain.model import gpu_use, spent
from penstock.brain.model.repeated import Repeated
from penstock.brain.model.rollups import (
    MINUTE,
    TEN_MINUTES,
    Rollup,
    dump_roles,
    load_roles,
    of_sample,
)
from penstock.brain.store.database import Database
from penstock.brain.store.tables import JobRow, RollupRow, SampleRow

_NEAR_SECONDS: Final = 900.0
"""How far back the minutes of many jobs are read at once; of a job that was silent for longer the
newest is looked for."""


class Rollups:
    """The roll-ups, within one transaction."""

    def __init__(self, database: Database, session: AsyncSession) -> None:
        self._database = database
        self._session = session

    async def newest_received(self) -> float | None:
        """Up to which time of receipt samples have been summed up."""
        found: float | None = await self._session.scalar(
            select(func.max(col(RollupRow.received_seconds))).where(
                col(RollupRow.resolution_seconds) == MINUTE
            )
        )
        return found

    async def touched(self, since: float, until: float) -> Sequence[tuple[str, float]]:
        """Jobs and moments of the samples that were received in a time span."""
        query = select(col(SampleRow.job_uid), col(SampleRow.at_seconds)).where(
            col(SampleRow.received_seconds) > since, col(SampleRow.received_seconds) <= until
        )
        return [(uid, at) for uid, at in await self._session.execute(query)]

    async def samples(self, uid: str, start: float, end: float) -> list[Mapping[str, Any]]:
        """The samples of one job between two moments in their order, as arguments of `of_sample`,
        packed."""
        rows: Result[Any] = await self._session.execute(
            select(
                col(SampleRow.at_seconds),
                col(SampleRow.interval_seconds).label("seconds"),
                col(SampleRow.step),
                col(SampleRow.epoch),
                col(SampleRow.steps_per_second),
                col(SampleRow.samples_per_second),
                col(SampleRow.world_size),
                col(SampleRow.received_seconds),
                col(SampleRow.ranks),
            )
            .where(
                col(SampleRow.job_uid) == uid,
                col(SampleRow.at_seconds) >= start,
                col(SampleRow.at_seconds) < end,
            )
            .order_by(col(SampleRow.at_seconds))
        )
        return [dict(row) for row in rows.mappings().all()]

    async def peaks(self, starts: Mapping[str, float]) -> dict[str, int]:
        """The highest step of each job before a moment, where anything was summed up before."""
        peak = func.coalesce(col(RollupRow.peak_step), col(RollupRow.step))
        uid, start = col(RollupRow.job_uid), col(RollupRow.start_seconds)
        resolution = col(RollupRow.resolution_seconds)
        rows = await self._session.execute(
            select(uid, start, peak)
            .where(
                uid.in_(list(starts)),
                resolution == MINUTE,
                start >= min(starts.values()) - _NEAR_SECONDS,
                start < max(starts.values()),
            )
            .order_by(start)
        )
        found = {row[0]: int(row[2]) for row in rows if row[1] < starts[row[0]]}
        for own, until in starts.items():
            if own in found:
                continue
            newest = await self._session.scalar(
                select(peak)
                .where(uid == own, start + resolution <= until)
                .order_by(start.desc())
                .limit(1)
            )
            if newest is not None:
                found[own] = int(newest)
        return found

    async def minutes(self, uid: str, start: float, end: float) -> list[Rollup]:
        """The minutes of one job between two moments."""
        rows = await self._session.scalars(
            select(RollupRow)
            .where(
                col(RollupRow.job_uid) == uid,
                col(RollupRow.resolution_seconds) == MINUTE,
                col(RollupRow.start_seconds) >= start,
                col(RollupRow.start_seconds) < end,
            )
            .order_by(col(RollupRow.start_seconds))
        )
        return [rollup_of(row) for row in rows.all()]

    async def put(
        self, resolution: int, rows: Iterable[tuple[str, float, Rollup]], *, replace: bool = True
    ) -> None:
        """Store roll-ups (job, start, sums). `replace` False: those that are there stay."""
        values = [
            {
                "job_uid": uid,
                "resolution_seconds": resolution,
                "start_seconds": start,
                "received_seconds": rollup.received_seconds,
                "samples": rollup.samples,
                "step": rollup.step,
                "epoch": rollup.epoch,
                "steps_per_second": rollup.steps_per_second,
                "samples_per_second": rollup.samples_per_second,
                "world_size": rollup.world_size,
                "roles": dump_roles(rollup.roles),
                "gpus": gpu_use.dump(rollup.gpus),
                "spent": spent.dump(rollup.spent),
                "peak_step": rollup.peak_step,
            }
            for uid, start, rollup in rows
        ]
        if not values:
            return
        insert = self._database.insert(RollupRow)
        key = ["job_uid", "resolution_seconds", "start_seconds"]
        statement = (
            insert.on_conflict_do_update(
                index_elements=key,
                set_={name: insert.excluded[name] for name in values[0] if name not in key},
            )
            if replace
            else insert.on_conflict_do_nothing(index_elements=key)
        )
        await self._session.execute(statement, values)

    async def page(
        self,
        uid: str,
        resolution: int,
        *,
        start: float | None,
        end: float | None,
        after: float | None,
        limit: int,
    ) -> Sequence[RollupRow]:
        """Roll-ups of a time range, oldest first; `after` is the start of the last one seen."""
        query = select(RollupRow).where(
            col(RollupRow.job_uid) == uid, col(RollupRow.resolution_seconds) == resolution
        )
        if start is not None:
            query = query.where(col(RollupRow.start_seconds) >= start)
        if end is not None:
            query = query.where(col(RollupRow.start_seconds) < end)
        if after is not None:
            query = query.where(col(RollupRow.start_seconds) > after)
        query = query.order_by(col(RollupRow.start_seconds)).limit(limit)
        return (await self._session.scalars(query)).all()


class SpentRow(NamedTuple):
    """What one roll-up says was spent, and whose it is."""

    uid: str
    name: str
    namespace: str
    user: str
    spent: str


class TrainedRow(NamedTuple):
    """What one roll-up says of the pods of a job, and since when the job is there."""

    uid: str
    registered_seconds: float
    finished_seconds: float | None
    start_seconds: float
    roles: str
    spent: str


async def spent_pages(
    session: AsyncSession,
    start: float,
    end: float,
    namespace: str | None = None,
    uids: Sequence[str] | None = None,
    size: int = 5000,
) -> AsyncIterator[list[SpentRow]]:
    """The roll-ups of a time range that cover each moment once, so many at a time.

    Ten minutes where they have been summed up, the minutes of what came after. `uids`: of these
    jobs alone, at most some hundred.
    """
    columns = (
        col(JobRow.uid),
        col(JobRow.name),
        col(JobRow.namespace),
        col(JobRow.user_name),
        col(RollupRow.spent),
    )
    query = _each_moment_once(columns, start, end)
    if namespace is not None:
        query = query.where(col(JobRow.namespace) == namespace)
    if uids is not None:
        query = query.where(col(JobRow.uid).in_(uids))
    result = await session.stream(query)
    async for part in result.partitions(size):
        yield [SpentRow(row[0], row[1], row[2], row[3], row[4] or "") for row in part]


async def trained_pages(
    session: AsyncSession, start: float, end: float, size: int = 5000
) -> AsyncIterator[list[TrainedRow]]:
    """The same of what pods there were, for all jobs."""
    columns = (
        col(JobRow.uid),
        col(JobRow.registered_seconds),
        col(JobRow.finished_seconds),
        col(RollupRow.start_seconds),
        col(RollupRow.roles),
        col(RollupRow.spent),
    )
    result = await session.stream(_each_moment_once(columns, start, end))
    async for part in result.partitions(size):
        yield [TrainedRow(row[0], row[1], row[2], row[3], row[4], row[5] or "") for row in part]


async def first_minutes(session: AsyncSession, start: float, end: float) -> dict[str, float]:
    """When each job that came between two moments first trained, to the minute, as far as its
    minutes are kept."""
    first = (
        select(func.min(col(RollupRow.start_seconds)))
        .where(
            col(RollupRow.job_uid) == col(JobRow.uid),
            col(RollupRow.resolution_seconds) == MINUTE,
        )
        .correlate(JobRow)
        .scalar_subquery()
    )
    registered = col(JobRow.registered_seconds)
    rows = await session.execute(
        select(col(JobRow.uid), first).where(registered >= start, registered < end)
    )
    return {row[0]: float(row[1]) for row in rows if row[1] is not None}


def _each_moment_once(columns: Sequence[Any], start: float, end: float) -> Select[Any]:
    """Roll-ups and their jobs in a time range, with no moment twice."""
    older = aliased(RollupRow)
    summed_until = (
        select(func.coalesce(func.max(col(older.start_seconds)) + TEN_MINUTES, 0.0))
        .where(
            col(older.job_uid) == col(RollupRow.job_uid),
            col(older.resolution_seconds) == TEN_MINUTES,
        )
        .scalar_subquery()
    )
    started, resolution = col(RollupRow.start_seconds), col(RollupRow.resolution_seconds)
    return (
        select(*columns)
        .join(JobRow, col(JobRow.uid) == col(RollupRow.job_uid))
        .where(
            started >= start,
            started < end,
            col(RollupRow.spent).is_not(None),
            (resolution == TEN_MINUTES) | ((resolution == MINUTE) & (started >= summed_until)),
        )
    )


def rollup_of(row: RollupRow) -> Rollup:
    """A stored roll-up."""
    return Rollup(
        samples=row.samples,
        seconds=float(row.samples),
        step=row.step,
        epoch=row.epoch,
        steps_per_second=row.steps_per_second,
        samples_per_second=row.samples_per_second,
        world_size=row.world_size,
        received_seconds=row.received_seconds,
        roles=load_roles(row.roles),
        gpus=gpu_use.load(row.gpus),
        spent=spent.load(row.spent),
        peak_step=row.step if row.peak_step is None else row.peak_step,
    )


def summed(
    samples: Iterable[Mapping[str, Any]], since: float, peak: int
) -> list[tuple[float, Rollup]]:
    """Samples as `Rollups.samples` gave them, with their moment.

    Args:
        samples: those from before ``since`` are not summed up, but say which step was the last.
        since: from when on.
        peak: the highest step before.
    """
    repeated = Repeated(peak=peak)
    found: list[tuple[float, Rollup]] = []
    for sample in samples:
        at, step = float(sample["at_seconds"]), int(sample["step"])
        if at < since:
            repeated.before, repeated.peak = step, max(repeated.peak, step)
            continue
        share = repeated.share(step, float(sample["samples_per_second"]))
        own = {name: value for name, value in sample.items() if name != "at_seconds"}
        found.append((at, of_sample(**own, repeated=share, peak_step=repeated.peak)))
    return found
