"""Every query on the runs of algorithms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.brain.store.tables import RunRow


class Runs:
    """The runs, within one transaction."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(self, rows: Iterable[RunRow]) -> None:
        """Store runs."""
        self._session.add_all(list(rows))

    async def shadows(self, uid: str, plan: int) -> Sequence[RunRow]:
        """What algorithms in shadow mode would have done instead of a plan."""
        query = (
            select(RunRow)
            .where(
                col(RunRow.job_uid) == uid,
                col(RunRow.plan) == plan,
                col(RunRow.shadow).is_(True),
                col(RunRow.content).is_not(None),
            )
            .order_by(col(RunRow.id))
            .limit(32)
        )
        return (await self._session.scalars(query)).all()

    async def page(self, uid: str, *, before: int | None, limit: int) -> Sequence[RunRow]:
        """Runs, the newest first; `before` is the id of the last one seen."""
        query = select(RunRow).where(col(RunRow.job_uid) == uid)
        if before is not None:
            query = query.where(col(RunRow.id) < before)
        return (
            await self._session.scalars(query.order_by(col(RunRow.id).desc()).limit(limit))
        ).all()
