"""Every query on the trainers' ledgers."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.brain.errors import StaleLedgerError
from penstock.brain.store.database import Database
from penstock.brain.store.tables import LedgerRow


class Ledgers:
    """The ledgers, within one transaction."""

    def __init__(self, database: Database, session: AsyncSession) -> None:
        self._database = database
        self._session = session

    async def get(self, uid: str) -> LedgerRow | None:
        """The newest ledger of a job."""
        return await self._session.get(LedgerRow, uid, populate_existing=True)

    async def put(self, uid: str, sequence: int, content: bytes, now: float) -> None:
        """Store a ledger, unless a newer one is there; the same one again changes nothing.

        Raises:
            StaleLedgerError: The stored ledger is newer.
        """
        insert = self._database.insert(LedgerRow).values(
            job_uid=uid, sequence=sequence, content=content, stored_seconds=now
        )
        stored = await self._session.scalar(
            insert.on_conflict_do_update(
                index_elements=["job_uid"],
                set_={
                    "sequence": insert.excluded.sequence,
                    "content": insert.excluded.content,
                    "stored_seconds": insert.excluded.stored_seconds,
                },
                where=col(LedgerRow.sequence) < insert.excluded.sequence,
            ).returning(col(LedgerRow.sequence))
        )
        if stored is not None:
            return
        present = await self.get(uid)
        if present is not None and present.sequence == sequence and present.content == content:
            return
        known = "another" if present is None else f"{present.sequence}"
        raise StaleLedgerError(
            f"sequence = {sequence}: must be greater than {known}, the one that is stored"
        )
