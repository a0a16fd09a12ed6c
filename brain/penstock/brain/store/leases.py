"""Which of several Brains administers which job."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, func, literal, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.base.enums import JobPhase
from penstock.brain.store.database import Database
from penstock.brain.store.tables import JobRow, LeaseRow


class Leases:
    """The leases, within one transaction. Times are the database's own on PostgreSQL, so that the
    clocks of two Brains need not agree."""

    def __init__(self, database: Database, session: AsyncSession) -> None:
        self._database = database
        self._session = session

    async def claim(
        self, holder: str, now: float, lease_seconds: float, limit: int
    ) -> Sequence[str]:
        """Renew the own leases and take at most `limit` that are free; the uids held then."""
        if not self._database.is_sqlite:
            query = text("SELECT extract(epoch FROM clock_timestamp())")
            now = float((await self._session.execute(query)).scalar_one())
        expires = now + lease_seconds
        await self._session.execute(
            self._database.insert(LeaseRow)
            .from_select(
                ["job_uid", "holder", "expires_seconds"],
                select(col(JobRow.uid), literal(""), literal(0.0))
                .outerjoin(LeaseRow, col(LeaseRow.job_uid) == col(JobRow.uid))
                .where(col(JobRow.phase) == JobPhase.ACTIVE.value, col(LeaseRow.job_uid).is_(None)),
            )
            .on_conflict_do_nothing(index_elements=["job_uid"])
        )
        free = (
            select(col(LeaseRow.job_uid))
            .join(JobRow, col(JobRow.uid) == col(LeaseRow.job_uid))
            .where(
                col(JobRow.phase) == JobPhase.ACTIVE.value,
                col(LeaseRow.expires_seconds) < now,
                col(LeaseRow.holder) != holder,
            )
            .limit(limit)
            .with_for_update(of=LeaseRow, skip_locked=True)
        )
        held = await self._session.scalars(
            update(LeaseRow)
            .where(or_(col(LeaseRow.holder) == holder, col(LeaseRow.job_uid).in_(free)))
            .values(holder=holder, expires_seconds=expires)
            .returning(col(LeaseRow.job_uid))
            .execution_options(synchronize_session=False)
        )
        return held.all()

    async def release(self, holder: str) -> None:
        """Give everything back at once, so that another Brain need not wait."""
        await self._session.execute(
            update(LeaseRow)
            .where(col(LeaseRow.holder) == holder)
            .values(holder="", expires_seconds=0.0)
        )

    async def retire(self) -> None:
        """Forget the leases of jobs that are not active any more."""
        over = select(col(JobRow.uid)).where(col(JobRow.phase) != JobPhase.ACTIVE.value)
        await self._session.execute(delete(LeaseRow).where(col(LeaseRow.job_uid).in_(over)))

    async def count(self, holder: str) -> int:
        """How many jobs a Brain administers."""
        query = select(func.count()).where(col(LeaseRow.holder) == holder)
        return int(await self._session.scalar(query) or 0)
