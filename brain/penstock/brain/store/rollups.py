"""Every query on roll-ups, and on the samples that they are made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Result, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.brain.model import gpu_use
from penstock.brain.model.rollups import MINUTE, Rollup, dump_roles, load_roles, of_sample
from penstock.brain.store.database import Database
from penstock.brain.store.tables import RollupRow, SampleRow


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
        """The samples of one job between two moments, as arguments of `of_sample`, packed."""
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
            ).where(
                col(SampleRow.job_uid) == uid,
                col(SampleRow.at_seconds) >= start,
                col(SampleRow.at_seconds) < end,
            )
        )
        return [dict(row) for row in rows.mappings().all()]

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
    )


def summed(samples: Iterable[Mapping[str, Any]]) -> list[tuple[float, Rollup]]:
    """Samples as `Rollups.samples` gave them, with their moment."""
    return [
        (
            float(sample["at_seconds"]),
            of_sample(**{name: value for name, value in sample.items() if name != "at_seconds"}),
        )
        for sample in samples
    ]
