"""What one process remembers about a job beyond what the cluster holds: all of it may be lost.

Nothing here is needed for the right end, only for getting there with fewer steps: after a restart
an incarnation that was reserved but perhaps not created is skipped, a log is read again, and the
job's own objects are created again and found to exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from penstock.controller.reconcile import timing
from penstock.controller.reconcile.observed import Refusal

Reservation = tuple[str, int, int]


@dataclass(slots=True)
class Memory:
    """What this process has done for one job and what came of it.

    The rules about reservations are what keeps an incarnation from being used twice: it is added
    when the status that records it is known to be written, and removed before a creation whose
    outcome could remain unknown.
    """

    reserved: set[Reservation] = field(default_factory=set)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    unresizable: set[str] = field(default_factory=set)
    objects_checked_at: datetime | None = None
    status_written_at: datetime | None = None
    generation: int = 0

    def status_written(self, reserves: frozenset[Reservation], now: datetime) -> None:
        """The API server has stored a status that allows these incarnations to be created."""
        self.reserved |= reserves
        self.status_written_at = now

    def creating(self, reservation: Reservation) -> None:
        """A creation is about to be sent."""
        self.reserved.discard(reservation)

    def not_created(self, reservation: Reservation, name: str, refusal: Refusal) -> None:
        """The API server said that it did not create the pod: the incarnation is still unused."""
        self.reserved.add(reservation)
        self.refusals[name] = refusal

    def created(self, name: str) -> None:
        """An object exists now."""
        self.refusals.pop(name, None)

    def objects_ready(self, now: datetime) -> bool:
        """Whether the job's own objects were seen not long ago."""
        checked = self.objects_checked_at
        return checked is not None and now < checked + timing.OBJECTS_RECHECK

    def observe(self, generation: int, pod_uids: frozenset[str]) -> None:
        """Forget what a new spec or the end of a pod has made meaningless."""
        if generation != self.generation:
            self.generation = generation
            self.refusals.clear()
        if self.unresizable:
            self.unresizable &= pod_uids
        if self.logs:
            self.logs = {uid: text for uid, text in self.logs.items() if uid in pod_uids}
