"""The shard ledger: who may process which slots, and which are done.

DLRover's data shard manager (section 5.2) and GoldMiner's dispatcher (section 4) are this one state
machine. It does no I/O and reads no clock: every call takes ``now``. What it guarantees:

- Every slot is consumed once (`Guarantee.EXACTLY_ONCE`) or handed out once (`AT_MOST_ONCE`), for
  any interleaving of leases, expiries, completions, duplicates, crashes and rollbacks.
- A completion counts only under a lease that is still held: each lease has a fencing number, and a
  number that has ended is refused. A late success can never close somebody else's lease.
- Nothing is dropped: what is not completed returns to the front, and is handed out lowest first. A
  slot that failed on `max_failures` different holders is kept aside and named.
- Memory grows with the number of open leases and gaps, never with the number of slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.base.enums import Guarantee
from penstock.data.ledger.errors import LedgerError, QuarantineError
from penstock.data.ledger.events import (
    Completed,
    Event,
    Failed,
    Leased,
    Returned,
    RolledBack,
)
from penstock.data.ledger.ranges import Range
from penstock.data.ledger.state import LedgerOptions, LedgerState, require_open

MAX_OPEN_LEASES: Final = 8192
"""Beyond this, `Ledger.lease` refuses: it bounds the snapshot (about 60 bytes per lease)."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Slots ``start..stop`` for one holder until ``deadline``; ``fence`` names this very lease."""

    fence: int
    holder: str
    start: int
    stop: int
    deadline: float


def fence_floor_at(unix_seconds: float) -> int:
    """A floor above every fencing number given out before that time, at up to 2^20 per second."""
    return int(unix_seconds) << 20


class Ledger:
    """The state of one job's slots; see the module's docstring for what it guarantees."""

    def __init__(
        self, options: LedgerOptions, fence_floor: int = 0, *, state: LedgerState | None = None
    ) -> None:
        """An empty ledger, or one that goes on from a state.

        ``fence_floor``: fencing numbers are greater than it. A keeper that may have lost the end of
        its journal passes a number above all that it can have given out (see `fence_floor_at`), or
        a late completion could meet somebody else's lease under the same number.
        """
        self.state = LedgerState(options, fence_floor) if state is None else state
        """To be read; only this ledger changes it."""
        self._events: list[Event] = []

    def reconfigure(self, *, skip_bad: bool) -> None:
        """Follow a change of the job's spec; all else about a ledger is fixed for its life."""
        self.state.options = replace(self.state.options, skip_bad=skip_bad)

    # ------------------------------------------------------------------ what a holder may do

    def lease(
        self, holder: str, now: float, max_slots: int, *, align: int = 1, slot: int | None = None
    ) -> Lease | None:
        """Hand the lowest free slots to a holder: one contiguous range of at most ``max_slots``.

        With ``align``, a range that continues past ``align`` slots ends on a multiple of it, so
        that whole steps stay together. None when nothing is free.

        ``slot``: instead that very one, though lower ones may be free; None where it is not.

        Raises:
            LedgerError: ``max_slots`` is below 1, or too many leases are open.
        """
        if max_slots < 1 or align < 1:
            raise LedgerError(f"max_slots: {max_slots}, align: {align}; both must be at least 1")
        if len(self.state.leases) >= MAX_OPEN_LEASES:
            open_ = len(self.state.leases)
            raise LedgerError(f"{open_} leases are open; complete or return some first")
        if slot is None:
            free = self.state.next_free(max_slots)
        else:
            free = (slot, slot + 1) if self.state.is_free(slot) else None
        if free is None:
            return None
        start, stop = free
        if stop - start > align and stop < self.state.options.total_slots:
            stop -= stop % align
        deadline = now + self.state.options.lease_seconds
        self._record(Leased(self.state.next_fence, holder, start, stop, deadline))
        return Lease(self.state.next_fence - 1, holder, start, stop, deadline)

    def renew(self, holder: str, now: float) -> int:
        """Move the deadline of all of a holder's leases; says how many there are.

        Deadlines are not journaled: after a restart every lease gets a full term again.
        """
        deadline = now + self.state.options.lease_seconds
        renewed = 0
        for lease in self.state.leases.values():
            if lease.holder == holder:
                lease.deadline = max(lease.deadline, deadline)
                renewed += 1
        return renewed

    def complete(self, fence: int, start: int, stop: int) -> int:
        """Acknowledge slots as consumed; a repeated acknowledgement changes nothing.

        Returns how many slots were newly consumed.

        Raises:
            StaleLeaseError: the lease has ended.
            LedgerError: the range is not part of the lease.
        """
        if self.state.options.guarantee is Guarantee.AT_MOST_ONCE and fence < self.state.next_fence:
            return 0  # handed out is consumed: there is nothing to acknowledge
        lease = self.state.require(fence)
        lease.require_part(fence, start, stop)
        fresh = sum(high - low for low, high in lease.open.intersection(start, stop))
        if fresh:
            self._record(Completed(fence, start, stop))
        return fresh

    def give_back(self, fence: int) -> None:
        """End a lease; what it did not complete goes to the front.

        Raises:
            StaleLeaseError: the lease has ended already.
        """
        self.state.require(fence)
        self._record(Returned(fence))

    def fail(self, fence: int, slot: int, holder: str = "") -> bool:
        """A holder failed on a slot of its lease; says whether the slot is now in quarantine.

        ``holder``: who failed, where several work under one lease; default: whose lease it is.

        Raises:
            StaleLeaseError: the lease has ended.
            LedgerError: the slot is not open in this lease.
        """
        lease = self.state.require(fence)
        require_open(fence, lease.open, slot)
        self._record(Failed(fence, slot, holder))
        return slot in self.state.quarantine

    # ------------------------------------------------------------------ what the keeper does

    def expire(self, now: float) -> list[Lease]:
        """End every lease whose deadline has passed; says which."""
        ended = [
            Lease(fence, lease.holder, lease.start, lease.stop, lease.deadline)
            for fence, lease in self.state.leases.items()
            if lease.deadline <= now
        ]
        for lease in ended:
            self._record(Returned(lease.fence))
        return ended

    def release(self, holder: str) -> int:
        """End all leases of a holder that is known to be gone; says how many there were."""
        fences = [fence for fence, lease in self.state.leases.items() if lease.holder == holder]
        for fence in fences:
            self._record(Returned(fence))
        return len(fences)

    def blame(self, holder: str) -> list[int]:
        """A holder crashed on its own: it failed on the first open slot of each of its leases.

        All its leases end; says which slots are in quarantine because of it.
        """
        quarantined = []
        for fence, lease in list(self.state.leases.items()):
            if lease.holder != holder:
                continue
            slot = next(iter(lease.open))[0]
            self._record(Failed(fence, slot))
            if slot in self.state.quarantine:
                quarantined.append(slot)
        self.release(holder)
        return quarantined

    def adopt(self, position: int) -> None:
        """Take a model's word that exactly the slots below ``position`` were consumed.

        For a keeper that lost its own state (or part of it) while the model lived on: the history
        that counts is the one that the surviving model has seen.

        Raises:
            LedgerError: there is no such position.
        """
        if not 0 <= position <= self.state.options.total_slots:
            raise LedgerError(
                f"position: {position}; the job has {self.state.options.total_slots} slots"
            )
        self._record(RolledBack(position))

    # ------------------------------------------------------------------ what it is

    @property
    def watermark(self) -> int:
        """All slots below it are consumed (or in quarantine, where bad ones are skipped)."""
        return self.state.watermark()

    @property
    def consumed(self) -> int:
        """How many slots are consumed."""
        return self.state.consumed.total

    @property
    def quarantine(self) -> list[Range]:
        """Slots that failed on too many holders."""
        return list(self.state.quarantine)

    @property
    def finished(self) -> bool:
        """Whether every slot is consumed; those in quarantine count only with ``skip_bad``."""
        return self.watermark >= self.state.options.total_slots

    def check_end(self) -> None:
        """Say so when nothing but quarantined slots is left and they may not be skipped.

        Raises:
            QuarantineError: the epoch cannot end; names the slots.
        """
        state, options = self.state, self.state.options
        if state.quarantine and not options.skip_bad and not state.leases:
            left = options.total_slots - state.consumed.total - state.quarantine.total
            if left == 0:
                slots = ", ".join(f"{start}..{stop}" for start, stop in state.quarantine)
                raise QuarantineError(
                    f"slots {slots} failed on {options.max_failures} different holders each; "
                    "set input.skipBad to end the epoch without them"
                )

    def leases(self, holder: str | None = None) -> list[Lease]:
        """The open leases, of one holder or of all."""
        return [
            Lease(fence, lease.holder, lease.start, lease.stop, lease.deadline)
            for fence, lease in self.state.leases.items()
            if holder is None or lease.holder == holder
        ]

    def take_events(self) -> list[Event]:
        """The events since the last call: for the journal."""
        events, self._events = self._events, []
        return events

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data: `LedgerState.snapshot`."""
        return self.state.snapshot()

    def _record(self, event: Event) -> None:
        self.state.apply(event)
        self._events.append(event)
