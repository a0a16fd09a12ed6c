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

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from penstock.base.enums import Guarantee
from penstock.data.ledger.errors import LedgerError, QuarantineError, SnapshotError, StaleLeaseError
from penstock.data.ledger.events import (
    Completed,
    Event,
    Failed,
    Leased,
    Returned,
    RolledBack,
)
from penstock.data.ledger.ranges import Range, RangeSet

SNAPSHOT_VERSION: Final = 1
MAX_OPEN_LEASES: Final = 8192
"""Beyond this, `Ledger.lease` refuses: it bounds the snapshot (about 60 bytes per lease)."""

MAX_BLAMED_SLOTS: Final = 1024


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """How a ledger behaves; the same for the whole job."""

    total_slots: int
    lease_seconds: float = 20.0
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    skip_bad: bool = False
    max_failures: int = 3

    def __post_init__(self) -> None:
        if self.total_slots < 1:
            raise ValueError(f"total_slots: {self.total_slots}; it must be at least 1")
        if not 0 < self.lease_seconds < float("inf"):
            raise ValueError(f"lease_seconds: {self.lease_seconds}; it must be positive")
        if self.max_failures < 1:
            raise ValueError(f"max_failures: {self.max_failures}; it must be at least 1")
        if self.guarantee is Guarantee.UNSHARDED:
            raise ValueError(
                "guarantee: Unsharded; each holder then has all slots to itself: give each a "
                "ledger of its own"
            )


@dataclass(slots=True)
class _Lease:
    holder: str
    start: int
    stop: int
    deadline: float
    open: RangeSet = field(default_factory=RangeSet)


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

    def __init__(self, options: LedgerOptions, fence_floor: int = 0) -> None:
        """An empty ledger.

        ``fence_floor``: fencing numbers are greater than it. A keeper that may have lost the end of
        its journal passes a number above all that it can have given out (see `fence_floor_at`), or
        a late completion could meet somebody else's lease under the same number.
        """
        self.options = options
        self._consumed = RangeSet()
        self._front = RangeSet()  # handed out once and returned: goes out before anything new
        self._frontier = 0  # the lowest slot that was never handed out
        self._leases: dict[int, _Lease] = {}
        self._next_fence = fence_floor + 1
        self._blame: dict[int, set[str]] = {}
        self._quarantine = RangeSet()
        self._events: list[Event] = []

    # ------------------------------------------------------------------ what a holder may do

    def lease(self, holder: str, now: float, max_slots: int, *, align: int = 1) -> Lease | None:
        """Hand the lowest free slots to a holder: one contiguous range of at most ``max_slots``.

        With ``align``, a range that continues past ``align`` slots ends on a multiple of it, so
        that whole steps stay together. None when nothing is free.

        Raises:
            LedgerError: ``max_slots`` is below 1, or too many leases are open.
        """
        if max_slots < 1 or align < 1:
            raise LedgerError(f"max_slots: {max_slots}, align: {align}; both must be at least 1")
        if len(self._leases) >= MAX_OPEN_LEASES:
            raise LedgerError(f"{len(self._leases)} leases are open; complete or return some first")
        free = self._next_free(max_slots)
        if free is None:
            return None
        start, stop = free
        if stop - start > align and stop < self.options.total_slots:
            stop -= stop % align
        deadline = now + self.options.lease_seconds
        self._record(Leased(self._next_fence, holder, start, stop, deadline))
        return Lease(self._next_fence - 1, holder, start, stop, deadline)

    def renew(self, holder: str, now: float) -> int:
        """Move the deadline of all of a holder's leases; says how many there are.

        Deadlines are not journaled: after a restart every lease gets a full term again.
        """
        deadline = now + self.options.lease_seconds
        renewed = 0
        for lease in self._leases.values():
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
        if self.options.guarantee is Guarantee.AT_MOST_ONCE and fence < self._next_fence:
            return 0  # handed out is consumed: there is nothing to acknowledge
        lease = self._require(fence)
        if not lease.start <= start < stop <= lease.stop:
            raise LedgerError(
                f"slots {start}..{stop} are not part of lease {fence}, which is "
                f"{lease.start}..{lease.stop}"
            )
        fresh = sum(high - low for low, high in lease.open.intersection(start, stop))
        if fresh:
            self._record(Completed(fence, start, stop))
        return fresh

    def give_back(self, fence: int) -> None:
        """End a lease; what it did not complete goes to the front.

        Raises:
            StaleLeaseError: the lease has ended already.
        """
        self._require(fence)
        self._record(Returned(fence))

    def fail(self, fence: int, slot: int, holder: str = "") -> bool:
        """A holder failed on a slot of its lease; says whether the slot is now in quarantine.

        ``holder``: who failed, where several work under one lease; default: whose lease it is.

        Raises:
            StaleLeaseError: the lease has ended.
            LedgerError: the slot is not open in this lease.
        """
        lease = self._require(fence)
        if slot not in lease.open:
            raise LedgerError(f"slot {slot} is not open in lease {fence}")
        self._record(Failed(fence, slot, holder))
        return slot in self._quarantine

    # ------------------------------------------------------------------ what the keeper does

    def expire(self, now: float) -> list[Lease]:
        """End every lease whose deadline has passed; says which."""
        ended = [
            Lease(fence, lease.holder, lease.start, lease.stop, lease.deadline)
            for fence, lease in self._leases.items()
            if lease.deadline <= now
        ]
        for lease in ended:
            self._record(Returned(lease.fence))
        return ended

    def release(self, holder: str) -> int:
        """End all leases of a holder that is known to be gone; says how many there were."""
        fences = [fence for fence, lease in self._leases.items() if lease.holder == holder]
        for fence in fences:
            self._record(Returned(fence))
        return len(fences)

    def blame(self, holder: str) -> list[int]:
        """A holder crashed on its own: it failed on the first open slot of each of its leases.

        All its leases end; says which slots are in quarantine because of it.
        """
        quarantined = []
        for fence, lease in list(self._leases.items()):
            if lease.holder != holder:
                continue
            slot = next(iter(lease.open))[0]
            self._record(Failed(fence, slot))
            if slot in self._quarantine:
                quarantined.append(slot)
        self.release(holder)
        return quarantined

    def rollback(self, position: int) -> None:
        """Undo everything from ``position`` on, as the model has: all leases end.

        Raises:
            LedgerError: the position is beyond what was consumed without a gap.
        """
        if not 0 <= position <= self.watermark:
            raise LedgerError(
                f"position: {position}; slots up to {self.watermark} were consumed, and a rollback "
                "cannot go forward"
            )
        self._record(RolledBack(position))

    def adopt(self, position: int) -> None:
        """Take a model's word that exactly the slots below ``position`` were consumed.

        For a keeper that lost its own state (or part of it) while the model lived on: the history
        that counts is the one that the surviving model has seen.

        Raises:
            LedgerError: there is no such position.
        """
        if not 0 <= position <= self.options.total_slots:
            raise LedgerError(f"position: {position}; the job has {self.options.total_slots} slots")
        self._record(RolledBack(position))

    def rearm(self, now: float) -> None:
        """Give every open lease a full term: after a restart its holder may still be at work."""
        for lease in self._leases.values():
            lease.deadline = now + self.options.lease_seconds

    # ------------------------------------------------------------------ what it is

    @property
    def watermark(self) -> int:
        """All slots below it are consumed (or in quarantine, where bad ones are skipped)."""
        if not self._quarantine or not self.options.skip_bad:
            return self._consumed.watermark
        done = self._consumed.copy()
        for start, stop in self._quarantine:
            done.add(start, stop)
        return done.watermark

    @property
    def frontier(self) -> int:
        """Slots from it on were never handed out."""
        return self._frontier

    @property
    def consumed(self) -> int:
        """How many slots are consumed."""
        return self._consumed.total

    @property
    def quarantine(self) -> list[Range]:
        """Slots that failed on too many holders."""
        return list(self._quarantine)

    @property
    def finished(self) -> bool:
        """Whether every slot is consumed; those in quarantine count only with ``skip_bad``."""
        return self.watermark >= self.options.total_slots

    def check_end(self) -> None:
        """Say so when nothing but quarantined slots is left and they may not be skipped.

        Raises:
            QuarantineError: the epoch cannot end; names the slots.
        """
        if self._quarantine and not self.options.skip_bad and not self._leases:
            left = self.options.total_slots - self._consumed.total - self._quarantine.total
            if left == 0:
                slots = ", ".join(f"{start}..{stop}" for start, stop in self._quarantine)
                raise QuarantineError(
                    f"slots {slots} failed on {self.options.max_failures} different holders each; "
                    "set input.skipBad to end the epoch without them"
                )

    def leases(self, holder: str | None = None) -> list[Lease]:
        """The open leases, of one holder or of all."""
        return [
            Lease(fence, lease.holder, lease.start, lease.stop, lease.deadline)
            for fence, lease in self._leases.items()
            if holder is None or lease.holder == holder
        ]

    def take_events(self) -> list[Event]:
        """The events since the last call: for the journal."""
        events, self._events = self._events, []
        return events

    # ------------------------------------------------------------------ state

    def apply(self, event: Event) -> None:
        """Repeat an event of the past: for the replay of a journal.

        An event of a lease that has ended is passed over, as it was when it happened.
        """
        match event:
            case Leased(fence, holder, start, stop, deadline):
                self._next_fence = max(self._next_fence, fence + 1)
                self._front.remove(start, stop)
                self._frontier = max(self._frontier, stop)
                if self.options.guarantee is Guarantee.AT_MOST_ONCE:
                    self._consumed.add(start, stop)
                else:
                    lease = _Lease(holder, start, stop, deadline, RangeSet([(start, stop)]))
                    self._leases[fence] = lease
            case Completed(fence, start, stop):
                if (held := self._leases.get(fence)) is not None:
                    for low, high in held.open.intersection(start, stop):
                        self._consumed.add(low, high)
                    held.open.remove(start, stop)
                    if not held.open:
                        del self._leases[fence]
            case Returned(fence):
                if (held := self._leases.pop(fence, None)) is not None:
                    for low, high in held.open:
                        self._front.add(low, high)
            case Failed(fence, slot, holder):
                if (held := self._leases.get(fence)) is not None:
                    self._blame_slot(held, slot, holder or held.holder)
                    if not held.open:
                        del self._leases[fence]
            case RolledBack(position):
                self._leases.clear()
                bad = list(self._quarantine)  # stays: what failed thrice would fail again
                self._frontier = max([position, *(high for _, high in bad)])
                self._consumed = RangeSet([(0, position)])
                self._front = RangeSet([(position, self._frontier)])
                for low, high in bad:
                    self._consumed.remove(low, high)
                    self._front.remove(low, high)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data (msgpack or JSON); `restore` takes it back."""
        return {
            "version": SNAPSHOT_VERSION,
            "total_slots": self.options.total_slots,
            "consumed": [list(part) for part in self._consumed],
            "front": [list(part) for part in self._front],
            "frontier": self._frontier,
            "next_fence": self._next_fence,
            "leases": [
                [fence, lease.holder, lease.start, lease.stop, [list(part) for part in lease.open]]
                for fence, lease in self._leases.items()
            ],
            "blame": [[slot, sorted(holders)] for slot, holders in self._blame.items()],
            "quarantine": [list(part) for part in self._quarantine],
        }

    @classmethod
    def restore(
        cls,
        options: LedgerOptions,
        snapshot: Mapping[str, Any],
        now: float,
        fence_floor: int = 0,
    ) -> Ledger:
        """The ledger that wrote the snapshot; open leases get a full term from ``now``.

        Raises:
            SnapshotError: the snapshot is of another version or another job, or damaged.
        """
        if snapshot.get("version") != SNAPSHOT_VERSION:
            raise SnapshotError(
                f"version: {snapshot.get('version')!r}; this ledger reads {SNAPSHOT_VERSION}"
            )
        if snapshot.get("total_slots") != options.total_slots:
            raise SnapshotError(
                f"total_slots: the snapshot has {snapshot.get('total_slots')!r}, the job has "
                f"{options.total_slots}: the data or the batch changed"
            )
        ledger = cls(options)
        try:
            ledger._consumed = RangeSet((int(a), int(b)) for a, b in snapshot["consumed"])
            ledger._front = RangeSet((int(a), int(b)) for a, b in snapshot["front"])
            ledger._frontier = int(snapshot["frontier"])
            ledger._next_fence = max(int(snapshot["next_fence"]), fence_floor + 1)
            for fence, holder, start, stop, parts in snapshot["leases"]:
                opened = RangeSet((int(a), int(b)) for a, b in parts)
                deadline = now + options.lease_seconds
                ledger._leases[int(fence)] = _Lease(str(holder), start, stop, deadline, opened)
            ledger._blame = {int(slot): set(holders) for slot, holders in snapshot["blame"]}
            ledger._quarantine = RangeSet((int(a), int(b)) for a, b in snapshot["quarantine"])
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotError(f"the snapshot is damaged: {error!r}") from error
        return ledger

    def check_invariants(self) -> None:
        """Assert that every slot is in exactly one place: for tests, after every event."""
        places = [self._consumed, self._front, self._quarantine]
        places += [lease.open for lease in self._leases.values()]
        parts = sorted(part for place in places for part in place)
        for (_, stop), (start, _) in pairwise(parts):
            assert stop <= start, f"a slot is in two places: {parts}"
        covered = sum(stop - start for start, stop in parts)
        assert covered == self._frontier, f"{self._frontier - covered} slots are nowhere: {parts}"
        assert not parts or parts[-1][1] <= self._frontier <= self.options.total_slots
        assert all(lease.open for lease in self._leases.values()), "an empty lease is kept"

    # ------------------------------------------------------------------ inside

    def _record(self, event: Event) -> None:
        self.apply(event)
        self._events.append(event)

    def _require(self, fence: int) -> _Lease:
        lease = self._leases.get(fence)
        if lease is None:
            raise StaleLeaseError(f"lease {fence} has ended: what was done under it does not count")
        return lease

    def _next_free(self, max_slots: int) -> Range | None:
        if (returned := self._front.first(max_slots)) is not None:
            return returned
        if self._frontier >= self.options.total_slots:
            return None
        return self._frontier, min(self._frontier + max_slots, self.options.total_slots)

    def _blame_slot(self, lease: _Lease, slot: int, holder: str) -> None:
        lease.open.remove(slot, slot + 1)
        holders = self._blame.setdefault(slot, set())
        holders.add(holder)
        if len(holders) >= self.options.max_failures:
            del self._blame[slot]
            self._quarantine.add(slot, slot + 1)
            return
        self._front.add(slot, slot + 1)
        while len(self._blame) > MAX_BLAMED_SLOTS:  # forget the oldest: it may fail again
            del self._blame[next(iter(self._blame))]
