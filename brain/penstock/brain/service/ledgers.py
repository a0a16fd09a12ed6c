"""Keeping the newest ledger of each trainer: opaque bytes with a sequence number."""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.enums import JobPhase
from penstock.brain.errors import JobFinishedError, NoLedgerError
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.ledgers import Ledgers
from penstock.brain.store.tables import LedgerRow


class LedgerService:
    """The ledgers of one Brain."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def put(self, uid: str, sequence: int, content: bytes) -> None:
        """Store a ledger.

        Raises:
            JobNotFoundError: No job has this uid.
            JobFinishedError: The job has ended and takes nothing more.
            StaleLedgerError: The stored ledger is newer.
        """
        async with self._database.write() as session:
            jobs = Jobs(self._database, session)
            row = await jobs.get(uid)
            if JobPhase(row.phase).finished:
                raise JobFinishedError(f"job {uid} has ended ({row.phase}): no ledger is taken")
            await Ledgers(self._database, session).put(uid, sequence, content, self._clock())
            await jobs.heard(uid, self._clock())

    async def get(self, uid: str) -> LedgerRow:
        """The newest ledger.

        Raises:
            JobNotFoundError: No job has this uid.
            NoLedgerError: No ledger has been stored for the job.
        """
        async with self._database.read() as session:
            await Jobs(self._database, session).get(uid)
            row = await Ledgers(self._database, session).get(uid)
        if row is None:
            raise NoLedgerError(f"job {uid} has not stored a ledger")
        return row
