"""The copy of a job's ledger that the Brain keeps, for a trainer that finds no journal.

Copies are numbered, above those of every earlier life of the trainer: the Brain takes no older one
for a newer one. One that is as the Brain has it is not sent again.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.client import AsyncBrainClient, BrainError, ConflictError
from penstock.data.ledger.journal import begin
from penstock.trainer.brain.failure_log import FailureLog
from penstock.trainer.control.coordinator import Coordinator

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 1 << 20


class LedgerCopies:
    """The copies of one job's ledger."""

    def __init__(
        self, client: AsyncBrainClient, uid: str, coordinator: Coordinator, failures: FailureLog
    ) -> None:
        self._client = client
        self._uid = uid
        self._coordinator = coordinator
        self._failures = failures
        self._sequence = 0
        self._kept: bytes | None = None  # the copy that the Brain has

    async def fetch(self) -> bytes | None:
        """The ledger that an earlier trainer left with the Brain, if it can be had now."""
        try:
            snapshot = await self._client.ledger(self._uid)
        except BrainError as error:
            logger.warning("the Brain's copy of the ledger cannot be read: %s", error)
            return None
        if snapshot is None:
            return None
        self._sequence = snapshot.sequence
        return snapshot.content

    def number_from(self, incarnation: int) -> None:
        """Number copies above those of every earlier life of the trainer."""
        self._sequence = max(self._sequence, incarnation << 32)

    async def send(self) -> None:
        """Leave a copy with the Brain if it does not have it."""
        content = self.make()
        if content is None or content == self._kept:
            return
        self._sequence += 1
        try:
            await self._client.put_ledger(self._uid, self._sequence, content)
            self._failures.note_success("ledger")
            self._kept = content
        except ConflictError as error:
            self._failures.note_failure("ledger", error)
            await self.fetch()  # learn the newest number
        except BrainError as error:
            self._failures.note_failure("ledger", error)

    def make(self) -> bytes | None:
        """A copy as of now; None before there is a ledger, or where it is too long."""
        ledger, extra = self._coordinator.state.ledger, self._coordinator.extra()
        if ledger is None or extra is None:
            return None
        content = begin(ledger, extra)
        return content if len(content) <= MAX_BYTES else None
