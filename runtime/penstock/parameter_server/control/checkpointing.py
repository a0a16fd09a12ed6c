"""When the model is saved, and whether the chief has done so.

A save begins with a halt, in which every server copies its partitions; from then on the chief
writes the copies to disk while the training goes on. Whoever is chief then: where one goes, or
fails, another does it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.job.protocol import MemberId
from penstock.parameter_server.control.revisions import OrderRevisions
from penstock.parameter_server.control.timeouts import Timeouts
from penstock.parameter_server.control.workers import WorkerRegistry

LOG = logging.getLogger("penstock.trainer")

MAX_FAILED = 3
"""At its end a job tries so often to save its model."""
SHARE = 0.1
"""Saving takes at most this part of the time."""


@dataclass
class CheckpointSchedule:
    """The saves of one job."""

    timeouts: Timeouts
    saved: int | None = None  # slots in the newest checkpoint that was made or heard of
    snapshot: int | None = None  # slots in the copies that servers keep, or are told to make
    writing: bool = False  # all of them have it
    after_move: bool = False  # one is due as soon as the next layout is built
    saver: MemberId | None = None
    trouble: str = ""  # why the newest save came to nothing
    _told: int = 0  # revision at which the saver was told
    _since: float = 0.0
    _not_before: float = float("-inf")
    _retry_at: float = float("-inf")
    _failed: int = 0

    def note(self, checkpoint: int | None) -> None:
        """A worker says which checkpoint it has."""
        if checkpoint is not None:
            self.saved = max(self.saved or 0, checkpoint)

    def has_saver(self, crew: WorkerRegistry, now: float) -> bool:
        """Whether anybody can write checkpoints."""
        chief = crew.chief(now)
        return chief is not None and chief.report.saves

    def may_begin(self, now: float) -> bool:
        """Whether nothing is being saved, and no save has just failed."""
        return self.snapshot is None and now >= self._retry_at

    def is_due(self, consumed: int, crew: WorkerRegistry, now: float) -> bool:
        """Whether so many slots are enough for the next one."""
        chief = crew.chief(now)
        if chief is None or not chief.report.saves or now < self._not_before:
            return False
        every = chief.report.save_every_slots
        return bool(every) and consumed - (self.saved or 0) >= every

    @property
    def given_up(self) -> bool:
        """Whether it has failed too often to be tried again at the end."""
        return self._failed >= MAX_FAILED

    def copy(self, slots: int) -> None:
        """Servers are told to make copies."""
        self.snapshot, self.writing, self.after_move = slots, False, False

    def copied(self, now: float) -> None:
        """All have made theirs: the chief is to write them."""
        self.writing, self._since, self.saver = True, now, None

    def drop(self) -> None:
        """The copies are not needed, or not to be had, any more."""
        self.snapshot, self.writing = None, False

    def fail(self, now: float) -> None:
        """A save came to nothing."""
        self._failed += 1
        self._retry_at = now + self.timeouts.retry
        self.drop()

    def mind(self, crew: WorkerRegistry, orders: OrderRevisions, now: float) -> bool:
        """Look how the chief gets on; True: it has ended, and servers may drop their copies."""
        if self.snapshot is None:
            return False
        chief = crew.chief(now)
        if chief is not None and chief.id != self.saver:
            self.saver, self._told = chief.id, orders.news()
        if chief is None or not chief.report.saves:
            LOG.warning("nobody is left to write the checkpoint of %d slots", self.snapshot)
            self.drop()
            return True
        if chief.report.saved == self.snapshot:
            LOG.info("checkpoint of %d slots saved by %s", self.snapshot, chief.id)
            self.saved, self._failed, self.trouble = self.snapshot, 0, ""
            self._not_before = now + (now - self._since) * (1 / SHARE - 1)
            self.drop()
            return True
        if chief.report.failed and chief.report.seen_revision >= self._told:
            LOG.warning("%s could not save: %s", chief.id, chief.report.failed)
            self.trouble = f"{chief.id} could not save: {chief.report.failed}"
        elif now - self._since >= self.timeouts.fill:
            LOG.warning("%s did not save in %d s", chief.id, self.timeouts.fill)
            self.trouble = f"{chief.id} did not save in {self.timeouts.fill:.0f} s: its disk hangs"
        else:
            return False
        crew.pass_over(chief.id, now + self.timeouts.fill)
        self.fail(now)
        return True
