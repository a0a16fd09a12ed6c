"""Every query on samples and on what happened to single pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.base.enums import EventKind, JobPhase, Role
from penstock.brain.history import SampleRecord
from penstock.brain.planning import JobEvent
from penstock.brain.store.database import Database
from penstock.brain.store.tables import EventRow, JobRow, SampleRow

MOST_SHARING: Final = 4000
"""Samples of jobs that share which are looked at: four a minute of a thousand jobs."""


class SharingJob(NamedTuple):
    """What one sample of a job says of the group that it shares batches with."""

    uid: str
    name: str
    ideal_per_second: float | None
    dequeued_per_second: float | None
    share: str


class Samples:
    """The samples, within one transaction."""

    def __init__(self, database: Database, session: AsyncSession) -> None:
        self._database = database
        self._session = session

    async def add(self, rows: Sequence[Mapping[str, Any]]) -> set[tuple[str, float]]:
        """Store samples (columns of `SampleRow`); job and time of those that were new."""
        if not rows:
            return set()
        key = ["job_uid", "time_seconds"]
        added = await self._session.execute(
            self._database.insert(SampleRow)
            .on_conflict_do_nothing(index_elements=key)
            .returning(col(SampleRow.job_uid), col(SampleRow.time_seconds)),
            [dict(row) for row in rows],
        )
        return {(row[0], row[1]) for row in added}

    async def add_events(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Store events (columns of `EventRow`); those that are there already stay."""
        if rows:
            key = ["job_uid", "time_seconds", "kind", "role", "rank"]
            await self._session.execute(
                self._database.insert(EventRow).on_conflict_do_nothing(index_elements=key),
                [dict(row) for row in rows],
            )

    async def records(self, uid: str, since: float, limit: int) -> tuple[SampleRecord, ...]:
        """The newest samples since a time, oldest first, for planning."""
        query = (
            select(
                col(SampleRow.at_seconds),
                col(SampleRow.interval_seconds),
                col(SampleRow.step),
                col(SampleRow.steps_per_second),
                col(SampleRow.samples_per_second),
                col(SampleRow.world_size),
                col(SampleRow.ranks),
            )
            .where(col(SampleRow.job_uid) == uid, col(SampleRow.at_seconds) >= since)
            .order_by(col(SampleRow.at_seconds).desc())
            .limit(limit)
        )
        rows = (await self._session.execute(query)).all()
        return tuple(SampleRecord(*row) for row in reversed(rows))

    async def sharing(
        self, namespace: str, since: float, limit: int = MOST_SHARING
    ) -> Sequence[SharingJob]:
        """Of the active jobs of a namespace that share batches, what they said since a time.

        The newest first, of each job all that it said.
        """
        query = (
            select(
                col(SampleRow.job_uid),
                col(JobRow.name),
                col(SampleRow.ideal_per_second),
                col(SampleRow.dequeued_per_second),
                col(SampleRow.share),
            )
            .join(JobRow, col(JobRow.uid) == col(SampleRow.job_uid))
            .where(
                col(SampleRow.received_seconds) >= since,
                col(SampleRow.share).is_not(None),
                col(JobRow.namespace) == namespace,
                col(JobRow.phase) == JobPhase.ACTIVE.value,
            )
            .order_by(col(SampleRow.at_seconds).desc())
            .limit(limit)
        )
        rows = (await self._session.execute(query)).all()
        return [SharingJob(*row[:4], row[4] or "") for row in rows]

    async def events(self, uid: str, since: float, limit: int) -> tuple[JobEvent, ...]:
        """The newest events since a time, oldest first."""
        query = (
            select(EventRow)
            .where(col(EventRow.job_uid) == uid, col(EventRow.at_seconds) >= since)
            .order_by(col(EventRow.at_seconds).desc())
            .limit(limit)
        )
        rows = (await self._session.scalars(query)).all()
        return tuple(
            JobEvent(
                time_seconds=row.at_seconds,
                kind=EventKind(row.kind),
                role=Role(row.role),
                rank=row.rank,
                memory_limit_bytes=row.memory_limit_bytes,
                node=row.node,
            )
            for row in reversed(rows)
        )

    async def page(
        self, uid: str, *, start: float | None, end: float | None, after: float | None, limit: int
    ) -> Sequence[SampleRow]:
        """Samples of a time range, oldest first; `after` is the key of the last one seen."""
        query = select(SampleRow).where(col(SampleRow.job_uid) == uid)
        if start is not None:
            query = query.where(col(SampleRow.time_seconds) >= start)
        if end is not None:
            query = query.where(col(SampleRow.time_seconds) < end)
        if after is not None:
            query = query.where(col(SampleRow.time_seconds) > after)
        query = query.order_by(col(SampleRow.time_seconds)).limit(limit)
        return (await self._session.scalars(query)).all()

    async def first_with(
        self, uid: str, *, since: float, world_size: int | None, servers: int | None
    ) -> float | None:
        """When the job was first seen with so many pods, since a time."""
        query = select(func.min(col(SampleRow.at_seconds))).where(
            col(SampleRow.job_uid) == uid, col(SampleRow.at_seconds) > since
        )
        if world_size is not None:
            query = query.where(col(SampleRow.world_size) == world_size)
        if servers is not None:
            query = query.where(col(SampleRow.servers) == servers)
        found: float | None = await self._session.scalar(query)
        return found

    async def speeds(self, uid: str, since: float, until: float, limit: int) -> Sequence[float]:
        """Steps per second of the samples between two times."""
        query = (
            select(col(SampleRow.steps_per_second))
            .where(
                col(SampleRow.job_uid) == uid,
                col(SampleRow.at_seconds) > since,
                col(SampleRow.at_seconds) <= until,
            )
            .limit(limit)
        )
        return (await self._session.scalars(query)).all()

    async def packed(self, uid: str, limit: int) -> Sequence[bytes]:
        """The packed ranks of the newest samples, newest first."""
        query = (
            select(col(SampleRow.ranks))
            .where(col(SampleRow.job_uid) == uid)
            .order_by(col(SampleRow.at_seconds).desc())
            .limit(limit)
        )
        return (await self._session.scalars(query)).all()

    async def oldest(self, uid: str) -> float | None:
        """Moment of the oldest sample that is still there."""
        found: float | None = await self._session.scalar(
            select(func.min(col(SampleRow.at_seconds))).where(col(SampleRow.job_uid) == uid)
        )
        return found
