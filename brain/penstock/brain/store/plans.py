"""Every query on plans."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.base.enums import JobPhase, Source
from penstock.brain.errors import PlanNotFoundError
from penstock.brain.store.tables import JobRow, PlanRow


class Plans:
    """The plans, within one transaction."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(self, row: PlanRow) -> None:
        """Store a plan under the number that `Jobs.next_plan` gave."""
        self._session.add(row)

    async def get(self, uid: str, number: int) -> PlanRow:
        """One plan.

        Raises:
            PlanNotFoundError: The job has no plan of this id.
        """
        row = await self._session.get(PlanRow, (uid, number))
        if row is None:
            raise PlanNotFoundError(f"job {uid} has no plan {number}")
        return row

    async def current(self, uid: str) -> PlanRow | None:
        """The plan in force."""
        query = (
            select(PlanRow)
            .join(JobRow, col(JobRow.uid) == col(PlanRow.job_uid))
            .where(col(JobRow.uid) == uid, col(PlanRow.number) == col(JobRow.current_plan))
        )
        return (await self._session.scalars(query)).one_or_none()

    async def page(self, uid: str, *, after: int = 0, limit: int = 100) -> Sequence[PlanRow]:
        """Plans in the order in which they were made."""
        query = (
            select(PlanRow)
            .where(col(PlanRow.job_uid) == uid, col(PlanRow.number) > after)
            .order_by(col(PlanRow.number))
            .limit(limit)
        )
        return (await self._session.scalars(query)).all()

    async def in_force_after(self, uid: str, after: int, limit: int = 100) -> Sequence[PlanRow]:
        """Plans that came into force, with a number above `after`."""
        query = (
            select(PlanRow)
            .where(
                col(PlanRow.job_uid) == uid,
                col(PlanRow.number) > after,
                col(PlanRow.held).is_(False),
            )
            .order_by(col(PlanRow.number))
            .limit(limit)
        )
        return (await self._session.scalars(query)).all()

    async def newest_in_force(self, uid: str, limit: int) -> Sequence[PlanRow]:
        """The newest plans that came into force, oldest first."""
        query = (
            select(PlanRow)
            .where(col(PlanRow.job_uid) == uid, col(PlanRow.held).is_(False))
            .order_by(col(PlanRow.number).desc())
            .limit(limit)
        )
        return (await self._session.scalars(query)).all()[::-1]

    async def newest_of_the_brain(self, uid: str, limit: int) -> Sequence[PlanRow]:
        """The newest plans of the Brain, held ones included, oldest first."""
        query = (
            select(PlanRow)
            .where(col(PlanRow.job_uid) == uid, col(PlanRow.source) == Source.BRAIN.value)
            .order_by(col(PlanRow.number).desc())
            .limit(limit)
        )
        return (await self._session.scalars(query)).all()[::-1]

    async def settle(self, uid: str, number: int, at: float) -> None:
        """Since when all pods of the plan have been training; written once."""
        await self._session.execute(
            update(PlanRow)
            .where(
                col(PlanRow.job_uid) == uid,
                col(PlanRow.number) == number,
                col(PlanRow.settled_seconds).is_(None),
            )
            .values(settled_seconds=at)
        )

    async def written(self, uid: str, number: int, scale: str | None, *, written: bool) -> None:
        """Whether the Scale of an override is in the cluster, or which one shall be."""
        await self._session.execute(
            update(PlanRow)
            .where(col(PlanRow.job_uid) == uid, col(PlanRow.number) == number)
            .values(scale=scale, scale_written=written)
        )

    async def unwritten(self, limit: int) -> Sequence[PlanRow]:
        """Overrides in force whose Scale is not in the cluster yet, oldest first."""
        query = (
            select(PlanRow)
            .join(JobRow, col(JobRow.uid) == col(PlanRow.job_uid))
            .where(
                col(PlanRow.scale).is_not(None),
                col(PlanRow.scale_written).is_(False),
                col(JobRow.phase) == JobPhase.ACTIVE.value,
                or_(
                    col(PlanRow.number) == col(JobRow.current_plan),
                    col(PlanRow.number) == col(JobRow.pinned_plan),
                ),
            )
            .order_by(col(PlanRow.created_seconds))
            .limit(limit)
        )
        return (await self._session.scalars(query)).all()
