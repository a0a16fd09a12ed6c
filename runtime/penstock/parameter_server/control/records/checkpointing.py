"""When the model is saved, and whether the chief has done so.

A save begins with a halt, in which every server copies its partitions; from then on the chief
writes the copies to disk while the training goes on. Whoever is chief then: where one goes, or
fails, another does it. Where there is no memory for copies the training waits until the chief has
read the parameters themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeGuard

from penstock.job.protocol import MemberId
from penstock.parameter_server.control.records.timeouts import Timeouts
from penstock.parameter_server.control.records.workers import WorkerState
from penstock.parameter_server.protocol import WorkerReport

SHARE: Final = 0.1
"""Saving takes at most this part of the time."""


@dataclass
class CheckpointSchedule:
    """The saves of one job."""

    timeouts: Timeouts
    saved: int | None = None  # slots in the newest checkpoint that was made or heard of
    snapshot: int | None = None  # slots in the copies that servers keep, or are told to make
    writing: bool = False  # all of them have it
    in_place: bool = False  # that was, or is, written without copies
    training_waits: bool = False  # for what is written in place to be read
    after_move: bool = False  # one is due as soon as the next layout is built
    saver: MemberId | None = None
    last_error: str = ""  # why the newest save came to nothing
    _told: int = 0  # revision at which the saver was told
    _since: float = 0.0
    _not_before: float = float("-inf")
    _retry_at: float = float("-inf")
    _ending_since: float | None = None  # the trained model is to be saved
    _failed_at: float = float("-inf")  # when the newest failure was

    def record(self, checkpoint: int | None) -> None:
        """A worker says which checkpoint it has."""
        if checkpoint is not None:
            self.saved = max(self.saved or 0, checkpoint)

    def may_begin(self, now: float) -> bool:
        """Whether nothing is being saved, and no save has just failed."""
        return self.snapshot is None and now >= self._retry_at

    def is_due(self, consumed: int, chief: WorkerState | None, now: float) -> bool:
        """Whether so many slots are enough for the next one."""
        if not can_save(chief) or now < self._not_before:
            return False
        every = chief.report.save_every_slots
        return bool(every) and consumed - (self.saved or 0) >= every

    def end(self, at_end: bool, now: float) -> None:
        """Whether it is the trained model that is to be saved."""
        if not at_end:
            self._ending_since = None
        elif self._ending_since is None:
            self._ending_since = now

    def is_given_up(self, now: float) -> bool:
        """Whether saving the trained model has failed for too long to be tried again."""
        since = self._ending_since
        return since is not None and self._failed_at >= since and now - since >= self.timeouts.last

    def begin(self, slots: int) -> None:
        """Servers are told to make copies."""
        self.snapshot, self.writing, self.after_move = slots, False, False

    def write(self, now: float, *, in_place: bool = False, training_waits: bool = False) -> None:
        """All have made theirs, or cannot (``in_place``): the chief is to write them."""
        self.writing, self._since, self.saver = True, now, None
        self.in_place, self.training_waits = in_place, training_waits

    def drop(self) -> None:
        """The copies are not needed, or not to be had, any more."""
        self.snapshot, self.writing = None, False

    def fail(self, now: float, why: str = "") -> None:
        """A save came to nothing; ``why``: what people are told, where it was not on purpose."""
        self._failed_at = now
        self.last_error = why or self.last_error
        self._retry_at = now + self.timeouts.retry
        if self.writing and self.training_waits:
            self._pause(now)
        self.drop()

    def appoint(self, chief: MemberId, revision: int) -> None:
        """Another chief is told, at a revision, to write what is being saved."""
        self.saver, self._told = chief, revision

    def succeed(self, now: float) -> None:
        """The chief has it on disk; the next one is not due at once."""
        self.saved, self.last_error = self.snapshot, ""
        self._pause(now)
        self.drop()

    def _pause(self, now: float) -> None:
        self._not_before = now + (now - self._since) * (1 / SHARE - 1)

    def has_failed(self, report: WorkerReport) -> bool:
        """Whether the chief says so, having heard what it is to write."""
        return bool(report.failed) and report.seen_revision >= self._told

    def has_read(self, report: WorkerReport) -> bool:
        """Whether the chief, having heard that, needs no parameters any more for what it writes."""
        return report.read == self.snapshot and report.seen_revision >= self._told

    def is_late(self, now: float) -> bool:
        """Whether the chief takes too long."""
        return now - self._since >= self.timeouts.initialize


def can_save(chief: WorkerState | None) -> TypeGuard[WorkerState]:
    """Whether there is a chief, and it can write checkpoints."""
    return chief is not None and chief.report.saves
