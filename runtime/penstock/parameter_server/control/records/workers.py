"""The workers that a trainer knows, and which of them is the chief.

The chief fills a layout from a checkpoint, or afresh, and saves snapshots. It is the worker with
the newest checkpoint; of equals, one that has a folder for checkpoints, then the lowest rank. It
stays chief while it lives, so that its work is not begun twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from penstock.job.protocol import MemberId
from penstock.parameter_server.layout import ServerId
from penstock.parameter_server.protocol import WorkerPhase, WorkerReport

MAX_WORKERS: Final = 16384
MAX_REPLACED: Final = 4096
SILENT_SECONDS: Final = 15.0
"""A worker that neither reports nor is vouched for by its agent for so long is taken for dead."""
OVERDUE_BATCHES: Final = 4
OVERDUE_SECONDS: Final = 2.0
"""Who has not ended its batch in so long, and in the time of so many, is not waited for while
others stand still: that costs no more than this batch, done again."""
SUSPICION_SECONDS: Final = 10.0
EVALUATION_SECONDS: Final = 900.0
"""How long a worker may evaluate its model without a word, where no agent speaks for it."""


@dataclass
class WorkerState:
    """The newest report of one rank's process."""

    report: WorkerReport
    seen: float
    ended: bool = False
    drained: bool = False  # it was asked to go before its loop had ended: another one is to come

    @property
    def id(self) -> MemberId:
        """Which process it is."""
        return self.report.member

    @property
    def closed(self) -> bool:
        """Whether it has said goodbye."""
        return self.report.phase is WorkerPhase.CLOSED


@dataclass
class WorkerRegistry:
    """The workers of one job."""

    chief_id: MemberId | None = None
    any_closed: bool = False
    any_completed: bool = False  # somebody closed who was not drained
    workers: dict[int, WorkerState] = field(default_factory=dict)
    _replaced: dict[MemberId, None] = field(default_factory=dict)
    _dropped: Counter[str] = field(default_factory=Counter)  # by workers that are gone
    _passed_over: dict[MemberId, float] = field(default_factory=dict)  # until when

    def record(self, report: WorkerReport, now: float) -> bool:
        """Take in a report; False if a newer process of its rank has reported."""
        member = report.member
        known = self.workers.get(member.rank)
        older = known is not None and known.id.incarnation > member.incarnation
        if older or member in self._replaced:
            return False
        if known is None or known.id != member:
            if known is not None:
                self._replace(known)
            elif len(self.workers) >= MAX_WORKERS:
                return False
            known = self.workers[member.rank] = WorkerState(report, now)
            # Of one that only says that it goes, another trainer knew why.
            known.drained = report.phase in (WorkerPhase.LEAVING, WorkerPhase.CLOSED)
        else:
            left = known.report.phase is WorkerPhase.RUNNING
            known.drained |= left and report.phase is WorkerPhase.LEAVING
            known.report, known.seen, known.ended = report, now, False
        self.any_closed |= known.closed
        self.any_completed |= known.closed and not known.drained
        return True

    def keep_alive(self, rank: int, incarnation: int, now: float) -> None:
        """A worker's agent says that its program runs."""
        known = self.workers.get(rank)
        if known is not None and known.id.incarnation == incarnation and not known.ended:
            known.seen = now

    def mark_ended(self, rank: int, incarnation: int) -> None:
        """A worker's program, or its pod, has ended."""
        known = self.workers.get(rank)
        if known is not None and known.id.incarnation <= incarnation:
            known.ended = True

    def has_reported(self, rank: int, incarnation: int) -> bool:
        """Whether this pod of a rank, or a later one, has ever reported."""
        known = self.workers.get(rank)
        return known is not None and known.id.incarnation >= incarnation

    def are_done(self, now: float) -> bool:
        """Whether somebody has said goodbye, and nobody is left who has yet to."""
        return self.any_closed and all(
            worker.closed or worker.ended or now - worker.seen >= _silence_limit(worker)
            for worker in self.workers.values()
        )

    def get(self, member: MemberId | None) -> WorkerState | None:
        """What is known of a worker; None of one that was replaced."""
        known = self.workers.get(member.rank) if member is not None else None
        return known if known is not None and known.id == member else None

    def is_live(self, worker: WorkerState, now: float) -> bool:
        """Whether a worker can be expected to do what it is told."""
        return not worker.closed and not worker.ended and now - worker.seen < SILENT_SECONDS

    def overdue(self, waited: float) -> set[str]:
        """Holders of leases that need no longer be waited for, after so many seconds."""
        found = set()
        for worker in self.workers.values():
            batch = worker.report.lease.slot_seconds or float("inf")
            if worker.ended or waited >= max(OVERDUE_SECONDS, OVERDUE_BATCHES * batch):
                found.add(worker.report.lease.holder)
        return found

    def live(self, now: float) -> list[WorkerState]:
        """The workers that live, by rank."""
        return [
            self.workers[rank]
            for rank in sorted(self.workers)
            if self.is_live(self.workers[rank], now)
        ]

    def count_training(self, now: float) -> int:
        """How many workers train."""
        return sum(worker.report.phase is WorkerPhase.RUNNING for worker in self.live(now))

    def suspected_servers(self, now: float) -> set[ServerId]:
        """Servers that do not answer some worker."""
        return {
            server
            for worker in self.live(now)
            if now - worker.seen < SUSPICION_SECONDS
            for server in worker.report.lost
        }

    def find_chief(self, now: float) -> WorkerState | None:
        """Who is chief, or would be if one was elected now."""
        present = self.get(self.chief_id)
        able = self._able(now)
        if present in able and (present.report.saves or not any(w.report.saves for w in able)):
            return present
        return max(able or self.live(now), key=_fitness, default=None)

    def elect(self, now: float) -> WorkerState | None:
        """Make the chief whom `find_chief` finds: from then on it stays chief while it can."""
        chief = self.find_chief(now)
        self.chief_id = chief.id if chief is not None else None
        return chief

    def elect_restorer(self, now: float) -> WorkerState | None:
        """The same for a restore: whoever has the newest checkpoint."""
        able = self._able(now)
        best = max(able, key=_fitness, default=None)
        present = self.get(self.chief_id)
        if best is None or (present in able and _fitness(present)[:2] == _fitness(best)[:2]):
            return self.elect(now)
        self.chief_id = best.id
        return best

    def pass_over(self, member: MemberId, until: float) -> None:
        """A chief could not do its work: others go first for a while."""
        if self.chief_id == member:
            self.chief_id = None
        self._passed_over[member] = until
        while len(self._passed_over) > MAX_REPLACED:
            del self._passed_over[next(iter(self._passed_over))]

    def newest_layout(self) -> int:
        """Number of the newest layout that any worker knows."""
        return max((worker.report.layout for worker in self.workers.values()), default=0)

    def dropped_batches(self) -> dict[str, int]:
        """Batches whose gradients were dropped, by parameter."""
        total = Counter(self._dropped)
        for worker in self.workers.values():
            total.update(worker.report.dropped)
        return dict(total)

    def _able(self, now: float) -> list[WorkerState]:
        return [each for each in self.live(now) if self._passed_over.get(each.id, now) <= now]

    def _replace(self, known: WorkerState) -> None:
        self._dropped.update(known.report.dropped)
        self._replaced[known.id] = None
        while len(self._replaced) > MAX_REPLACED:
            del self._replaced[next(iter(self._replaced))]


def _silence_limit(worker: WorkerState) -> float:
    """How long the end of the job waits for a worker that says nothing."""
    evaluates = worker.report.phase is WorkerPhase.FINISHED
    return EVALUATION_SECONDS if evaluates else 4 * SILENT_SECONDS


def _fitness(worker: WorkerState) -> tuple[int, bool, int]:
    report = worker.report
    newest = report.checkpoint if report.checkpoint is not None else -1
    return newest, report.saves, -worker.id.rank
