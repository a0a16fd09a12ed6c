"""Keeps a trainer's journal up with its ledger, on a thread of its own.

Nobody waits for the journal: an answer does not promise that it is on disk. What a trainer that is
killed had not written yet (at most what happened in `EVERY_SECONDS` and one write) the ranks know
better, or it is leased again under higher fencing numbers. So a disk that hangs holds nobody up: it
is said once, what happens meanwhile waits up to a bound, and beyond it the whole is written anew,
as after a write that failed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.data.ledger.events import Event
from penstock.data.ledger.journal import append, begin
from penstock.job.storage import cause
from penstock.trainer.control.coordinator import Coordinator
from penstock.trainer.journal import Journal

logger = logging.getLogger(__name__)

EVERY_SECONDS: Final = 0.2
HANG_SECONDS: Final = 10.0
"""A write that takes so long is said to hang."""
CLOSE_SECONDS: Final = 5.0
MAX_WAITING_EVENTS: Final = 1 << 16
_POLL_SECONDS: Final = 0.02


class JournalWriter:
    """Writes one coordinator's journal; called from the event loop, and never blocks it."""

    def __init__(
        self,
        journal: Journal,
        coordinator: Coordinator,
        hang_seconds: float = HANG_SECONDS,
        max_waiting_events: int = MAX_WAITING_EVENTS,
    ) -> None:
        self._journal = journal
        self._coordinator = coordinator
        self._hang_seconds = hang_seconds
        self._max_waiting_events = max_waiting_events
        self._waiting: list[Event] = []
        self._saved_extra: object = None  # None: the whole has to be written
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._work: Callable[[], None] | None = None  # what the thread is at
        self._began = 0.0
        self._error: OSError | None = None  # of the last write
        self._untold = False  # how the last write ended

    async def keep(self) -> None:
        """Write what happens until cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            self.write(time.monotonic())

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write what is left, and close the file; a disk that hangs is left after so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._settle()
                self.write(time.monotonic())
                await self._settle()
                self._start(self._journal.close, time.monotonic())
                await self._settle()
        except TimeoutError:
            logger.warning("%s was not written within %g s: left", self._journal.path, seconds)

    def write(self, now: float) -> None:
        """Have written what has happened since the last call, unless a write is under way."""
        self._wait_in_line(self._coordinator.take_journal_events())
        if self.busy:
            if now - self._began > self._hang_seconds:
                self._report(f"a write has not ended within {self._hang_seconds:g} s", now)
            return
        self._tell(now)
        ledger, extra = self._coordinator.state.ledger, self._coordinator.extra()
        if ledger is None or extra is None:
            return
        journal = self._journal
        if not journal.begun or journal.too_long or extra != self._saved_extra:
            whole = begin(ledger, extra)
            self._saved_extra = extra
            self._start(lambda: journal.rewrite(whole), now)
        elif self._waiting:
            more = append(self._waiting)
            self._start(lambda: journal.append(more), now)
        self._waiting.clear()

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        with self._changed:
            return self._work is not None

    # ------------------------------------------------------------------ inside

    async def _settle(self) -> None:
        while self.busy:  # noqa: ASYNC110  (the thread knows no event loop)
            await asyncio.sleep(_POLL_SECONDS)
        self._tell(time.monotonic())

    def _wait_in_line(self, events: tuple[Event, ...]) -> None:
        self._waiting += events
        if len(self._waiting) > self._max_waiting_events:
            self._waiting.clear()
            self._saved_extra = None

    def _tell(self, now: float) -> None:
        """How the write has ended; after one that failed the whole is written."""
        if not self._untold:
            return
        self._untold = False
        if self._error is None:
            self._coordinator.note_journal("", now)
        else:
            self._saved_extra = None
            self._report(cause(self._error), now)

    def _report(self, why: str, now: float) -> None:
        trouble = f"the journal {self._journal.path} cannot be written: {why}; make room there"
        self._coordinator.note_journal(f"{trouble}, or mend the disk: it is tried again", now)

    def _start(self, work: Callable[[], None], now: float) -> None:
        with self._changed:
            self._work, self._began, self._error, self._untold = work, now, None, True
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-journal", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work is not None)
                work = self._work
            assert work is not None
            error = None
            try:
                work()
            except OSError as caught:
                error = caught
            with self._changed:
                self._work, self._error = None, error
