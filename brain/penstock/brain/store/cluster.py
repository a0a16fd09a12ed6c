"""Every query on the read models of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Table, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.brain.store.database import Database
from penstock.brain.store.tables import AllocationRow, CapacityRow, SnapshotRow, WorkloadRow

AMOUNTS: Final = tuple(name for name in CapacityRow.model_fields if name != "start_seconds")
"""Of a minute of the cluster: amounts times seconds."""


class ClusterModels:
    """The read models, within one transaction."""

    def __init__(self, database: Database, session: AsyncSession) -> None:
        self._database = database
        self._session = session

    async def put(self, resolution: int, start: float, values: Mapping[str, Any]) -> None:
        """Store a snapshot for an interval, unless a newer one is there."""
        row = {"resolution_seconds": resolution, "time_seconds": start, **values}
        insert = self._database.insert(SnapshotRow).values(row)
        await self._session.execute(
            insert.on_conflict_do_update(
                index_elements=["resolution_seconds", "time_seconds"],
                set_={name: insert.excluded[name] for name in values},
                where=col(SnapshotRow.sent_seconds) <= insert.excluded.sent_seconds,
            )
        )

    async def newest(self) -> SnapshotRow | None:
        """The newest snapshot."""
        return await self._session.get(SnapshotRow, (0, 0.0), populate_existing=True)

    async def add_capacity(self, rows: Iterable[Mapping[str, float]]) -> None:
        """Add what nodes had to the minutes in which they had it."""
        values = [dict(row) for row in rows]
        if not values:
            return
        insert = self._database.insert(CapacityRow)
        table: Table = CapacityRow.__table__  # type: ignore[attr-defined]  # SQLModel makes it
        await self._session.execute(
            insert.on_conflict_do_update(
                index_elements=["start_seconds"],
                set_={name: table.c[name] + insert.excluded[name] for name in AMOUNTS},
            ),
            values,
        )

    async def capacity(self, start: float, end: float) -> dict[str, float]:
        """What nodes had between two moments; zeros where nothing is known."""
        started = col(CapacityRow.start_seconds)
        table: Table = CapacityRow.__table__  # type: ignore[attr-defined]  # SQLModel makes it
        row = (
            await self._session.execute(
                select(*(func.coalesce(func.sum(table.c[name]), 0.0) for name in AMOUNTS)).where(
                    started >= start, started < end
                )
            )
        ).one()
        return dict(zip(AMOUNTS, (float(value) for value in row), strict=True))

    async def sent_last(self) -> float | None:
        """When the newest snapshot was made; nobody else may store one until this is done."""
        found: float | None = await self._session.scalar(
            select(col(SnapshotRow.sent_seconds))
            .where(col(SnapshotRow.resolution_seconds) == 0)
            .with_for_update()
        )
        return found

    async def put_workload(self, sent: float, content: bytes) -> None:
        """Store the pods and nodes of the cluster, unless newer ones are there."""
        insert = self._database.insert(WorkloadRow).values(
            {"id": 0, "sent_seconds": sent, "content": content}
        )
        await self._session.execute(
            insert.on_conflict_do_update(
                index_elements=["id"],
                set_={name: insert.excluded[name] for name in ("sent_seconds", "content")},
                where=col(WorkloadRow.sent_seconds) <= insert.excluded.sent_seconds,
            )
        )

    async def workload(self) -> WorkloadRow | None:
        """The pods and nodes that were stored last."""
        return await self._session.get(WorkloadRow, 0, populate_existing=True)

    async def page(
        self,
        resolution: int,
        *,
        start: float | None,
        end: float | None,
        after: float | None,
        limit: int,
    ) -> Sequence[SnapshotRow]:
        """Snapshots of a time range, oldest first; `after` is the time of the last one seen."""
        query = select(SnapshotRow).where(col(SnapshotRow.resolution_seconds) == resolution)
        if start is not None:
            query = query.where(col(SnapshotRow.time_seconds) >= start)
        if end is not None:
            query = query.where(col(SnapshotRow.time_seconds) < end)
        if after is not None:
            query = query.where(col(SnapshotRow.time_seconds) > after)
        query = query.order_by(col(SnapshotRow.time_seconds)).limit(limit)
        return (await self._session.scalars(query)).all()

    async def add_allocations(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Store decisions; one that is there already, by its key, stays as it is."""
        values = [dict(row) for row in rows]
        if values:
            await self._session.execute(
                self._database.insert(AllocationRow).on_conflict_do_nothing(index_elements=["key"]),
                values,
            )

    async def allocations(
        self, *, since: float | None, before: int | None, limit: int, job_uid: str | None = None
    ) -> Sequence[AllocationRow]:
        """Decisions, the newest first; `before` is the id of the last one seen."""
        query = select(AllocationRow)
        if job_uid is not None:
            query = query.where(col(AllocationRow.job_uid) == job_uid)
        if since is not None:
            query = query.where(col(AllocationRow.time_seconds) >= since)
        if before is not None:
            query = query.where(col(AllocationRow.id) < before)
        query = query.order_by(col(AllocationRow.id).desc()).limit(limit)
        return (await self._session.scalars(query)).all()
