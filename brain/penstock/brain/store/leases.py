"""Which of several Brains administers which job.

Each Brain says that it lives whenever it claims, in a row of `replicas` that runs out with its
leases. A job's lease is free where it has run out or was let go; whose it is then is decided in
`penstock.brain.ownership`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Update, delete, func, literal, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.base.enums import JobPhase
from penstock.brain.ownership import moves
from penstock.brain.store.database import Database
from penstock.brain.store.tables import JobRow, LeaseRow, ReplicaRow


@dataclass(frozen=True, slots=True)
class Claimed:
    """The uids of the jobs that are held now; `more`: another claim at once would move more."""

    held: frozenset[str]
    more: bool


class Leases:
    """The leases, within one transaction. Times are the database's own on PostgreSQL, so that the
    clocks of two Brains need not agree."""

    def __init__(self, database: Database, session: AsyncSession) -> None:
        self._database = database
        self._session = session

    async def claim(self, holder: str, now: float, lease_seconds: float, most: int) -> Claimed:
        """Renew the own leases, take those that are free and belong to this Brain, and let go those
        that belong to another that lives; at most `most` of either.
        """
        if not self._database.is_sqlite:
            query = text("SELECT extract(epoch FROM clock_timestamp())")
            now = float((await self._session.execute(query)).scalar_one())
        expires = now + lease_seconds
        living = await self._living(holder, now, expires)
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
        renewed = await self._session.scalars(
            update(LeaseRow)
            .where(col(LeaseRow.holder) == holder)
            .values(expires_seconds=expires)
            .returning(col(LeaseRow.job_uid))
            .execution_options(synchronize_session=False)
        )
        held = frozenset(renewed.all())
        free = await self._session.scalars(
            select(col(LeaseRow.job_uid))
            .join(JobRow, col(JobRow.uid) == col(LeaseRow.job_uid))
            .where(
                col(JobRow.phase) == JobPhase.ACTIVE.value,
                col(LeaseRow.expires_seconds) < now,
                col(LeaseRow.holder) != holder,
            )
        )
        wanted = moves(holder, living, held, free.all(), most)
        taken = await self._take(wanted.take, holder, now, expires)
        if wanted.release:
            await self._session.execute(
                _let_go().where(
                    col(LeaseRow.holder) == holder, col(LeaseRow.job_uid).in_(wanted.release)
                )
            )
        return Claimed(
            held=held - frozenset(wanted.release) | taken,
            more=most in (len(wanted.take), len(wanted.release)),
        )

    async def release(self, holder: str) -> None:
        """Give everything back at once, so that another Brain need not wait."""
        await self._session.execute(_let_go().where(col(LeaseRow.holder) == holder))
        await self._session.execute(delete(ReplicaRow).where(col(ReplicaRow.name) == holder))

    async def retire(self) -> None:
        """Forget the leases of jobs that are not active any more."""
        over = select(col(JobRow.uid)).where(col(JobRow.phase) != JobPhase.ACTIVE.value)
        await self._session.execute(delete(LeaseRow).where(col(LeaseRow.job_uid).in_(over)))

    async def count(self, holder: str) -> int:
        """How many jobs a Brain administers."""
        query = select(func.count()).where(col(LeaseRow.holder) == holder)
        return int(await self._session.scalar(query) or 0)

    async def _living(self, holder: str, now: float, expires: float) -> Sequence[str]:
        """The Brains that live, this one among them, whose time is renewed."""
        await self._session.execute(
            self._database.insert(ReplicaRow)
            .values(name=holder, expires_seconds=expires)
            .on_conflict_do_update(index_elements=["name"], set_={"expires_seconds": expires})
        )
        await self._session.execute(delete(ReplicaRow).where(col(ReplicaRow.expires_seconds) < now))
        return (await self._session.scalars(select(col(ReplicaRow.name)))).all()

    async def _take(
        self, uids: Sequence[str], holder: str, now: float, expires: float
    ) -> frozenset[str]:
        if not uids:
            return frozenset()
        # Who saw other replicas may be taking one, or be back and renew it: theirs then.
        free = (
            select(col(LeaseRow.job_uid))
            .where(col(LeaseRow.job_uid).in_(uids), col(LeaseRow.expires_seconds) < now)
            .with_for_update(skip_locked=True)
        )
        taken = await self._session.scalars(
            update(LeaseRow)
            .where(col(LeaseRow.job_uid).in_(free))
            .values(holder=holder, expires_seconds=expires)
            .returning(col(LeaseRow.job_uid))
            .execution_options(synchronize_session=False)
        )
        return frozenset(taken.all())


def _let_go() -> Update:
    return update(LeaseRow).values(holder="", expires_seconds=0.0)
