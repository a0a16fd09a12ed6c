"""The value that the shard ledger keeps: where every slot is, and how an event changes that.

Every change of a slot goes through `LedgerState.apply`, whether it happens now or is repeated from
a journal: so what a journal gives back is what there was. Deadlines and options are in no journal.
Every slot is in exactly one place: consumed, open in a lease, returned to the front, in quarantine,
or beyond the frontier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Self

from penstock.base.enums import Guarantee
from penstock.data.ledger.errors import LedgerError, SnapshotError, StaleLeaseError
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
class OpenLease:
    """A lease that has not ended: ``open`` are its slots that are not completed."""

    holder: str
    start: int
    stop: int
    deadline: float
    open: RangeSet = field(default_factory=RangeSet)

    def require_part(self, fence: int, start: int, stop: int) -> None:
        """Raises LedgerError: these slots are not part of it. ``fence``: its number."""
        if not self.start <= start < stop <= self.stop:
            raise LedgerError(
                f"slots {start}..{stop} are not part of lease {fence}, which is "
                f"{self.start}..{self.stop}"
            )


class LedgerState:
    """Where every slot of a job is; `penstock.data.ledger.ledger.Ledger` says what may happen.

    Attributes:
        consumed: slots that are done.
        front: slots that were handed out once and returned; they go out before anything new.
        frontier: the lowest slot that was never handed out.
        leases: the open leases by fencing number.
        next_fence: the number of the next lease.
        blame: holders that failed on a slot.
        quarantine: slots that failed on too many holders.
    """

    def __init__(self, options: LedgerOptions, fence_floor: int = 0) -> None:
        """All slots free; ``fence_floor``: fencing numbers are greater than it."""
        self.options = options
        self.consumed = RangeSet()
        self.front = RangeSet()
        self.frontier = 0
        self.leases: dict[int, OpenLease] = {}
        self.next_fence = fence_floor + 1
        self.blame: dict[int, set[str]] = {}
        self.quarantine = RangeSet()

    def require(self, fence: int) -> OpenLease:
        """The open lease of that number.

        Raises:
            StaleLeaseError: it has ended.
        """
        lease = self.leases.get(fence)
        if lease is None:
            raise StaleLeaseError(f"lease {fence} has ended: what was done under it does not count")
        return lease

    def check_acknowledgements(
        self, completed: Iterable[tuple[int, int, int]], failed: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Whether all of these can be taken in, one after the other; changes nothing.

        What is said of a lease that has ended is not false: it came too late, and does not count.

        Args:
            completed: fencing number, first slot and the one behind the last.
            failed: fencing number and slot; they are said after what was completed.

        Raises:
            LedgerError: as `Ledger.complete` and `Ledger.fail` for the first that is false.
        """
        left: dict[int, RangeSet] = {}  # open slots of leases, after what was said so far
        at_most_once = self.options.guarantee is Guarantee.AT_MOST_ONCE
        for fence, start, stop in completed:
            lease = self.leases.get(fence)
            if lease is None or (at_most_once and fence < self.next_fence):
                continue
            open_ = left.setdefault(fence, lease.open.copy())
            if open_:
                lease.require_part(fence, start, stop)
                open_.remove(start, stop)
        for fence, slot in failed:
            lease = self.leases.get(fence)
            if lease is None:
                continue
            open_ = left.setdefault(fence, lease.open.copy())
            if open_:
                require_open(fence, open_, slot)
                open_.remove(slot, slot + 1)

    def next_free(self, max_slots: int) -> Range | None:
        """The lowest free slots, at most so many; None where all are handed out."""
        if (returned := self.front.first(max_slots)) is not None:
            return returned
        if self.frontier >= self.options.total_slots:
            return None
        return self.frontier, min(self.frontier + max_slots, self.options.total_slots)

    def is_free(self, slot: int) -> bool:
        """Whether a slot can be handed out now."""
        return slot in self.front or self.frontier <= slot < self.options.total_slots

    def watermark(self) -> int:
        """All slots below it are consumed (or in quarantine, where bad ones are skipped)."""
        if not self.quarantine or not self.options.skip_bad:
            return self.consumed.watermark
        done = self.consumed.copy()
        for start, stop in self.quarantine:
            done.add(start, stop)
        return done.watermark

    def apply(self, event: Event) -> None:
        """Make an event happen, now or once more: for the replay of a journal.

        An event of a lease that has ended is passed over, as it was the first time.
        """
        match event:
            case Leased(fence, holder, start, stop, deadline):
                self.next_fence = max(self.next_fence, fence + 1)
                self.front.remove(start, stop)
                if start > self.frontier:  # what was passed over is still to be handed out
                    self.front.add(self.frontier, start)
                self.frontier = max(self.frontier, stop)
                if self.options.guarantee is Guarantee.AT_MOST_ONCE:
                    self.consumed.add(start, stop)
                else:
                    lease = OpenLease(holder, start, stop, deadline, RangeSet([(start, stop)]))
                    self.leases[fence] = lease
            case Completed(fence, start, stop):
                if (held := self.leases.get(fence)) is not None:
                    for low, high in held.open.intersection(start, stop):
                        self.consumed.add(low, high)
                    held.open.remove(start, stop)
                    if not held.open:
                        del self.leases[fence]
            case Returned(fence):
                if (held := self.leases.pop(fence, None)) is not None:
                    for low, high in held.open:
                        self.front.add(low, high)
            case Failed(fence, slot, holder):
                if (held := self.leases.get(fence)) is not None:
                    self._blame_slot(held, slot, holder or held.holder)
                    if not held.open:
                        del self.leases[fence]
            case RolledBack(position):
                self.leases.clear()
                bad = list(self.quarantine)  # stays: what failed thrice would fail again
                self.frontier = max([position, *(high for _, high in bad)])
                self.consumed = RangeSet([(0, position)])
                self.front = RangeSet([(position, self.frontier)])
                for low, high in bad:
                    self.consumed.remove(low, high)
                    self.front.remove(low, high)

    def _blame_slot(self, lease: OpenLease, slot: int, holder: str) -> None:
        lease.open.remove(slot, slot + 1)
        holders = self.blame.setdefault(slot, set())
        holders.add(holder)
        if len(holders) >= self.options.max_failures:
            del self.blame[slot]
            self.quarantine.add(slot, slot + 1)
            return
        self.front.add(slot, slot + 1)
        while len(self.blame) > MAX_BLAMED_SLOTS:  # forget the oldest: it may fail again
            del self.blame[next(iter(self.blame))]

    def rearm(self, now: float) -> None:
        """Give every open lease a full term: after a restart its holder may still be at work."""
        for lease in self.leases.values():
            lease.deadline = now + self.options.lease_seconds

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data (msgpack or JSON); `restore` takes it back."""
        return {
            "version": SNAPSHOT_VERSION,
            "total_slots": self.options.total_slots,
            "consumed": [list(part) for part in self.consumed],
            "front": [list(part) for part in self.front],
            "frontier": self.frontier,
            "next_fence": self.next_fence,
            "leases": [
                [fence, lease.holder, lease.start, lease.stop, [list(part) for part in lease.open]]
                for fence, lease in self.leases.items()
            ],
            "blame": [[slot, sorted(holders)] for slot, holders in self.blame.items()],
            "quarantine": [list(part) for part in self.quarantine],
        }

    @classmethod
    def restore(
        cls,
        options: LedgerOptions,
        snapshot: Mapping[str, Any],
        now: float,
        fence_floor: int = 0,
    ) -> Self:
        """The state of which the snapshot was made; open leases get a full term from ``now``.

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
        state = cls(options)
        try:
            state.consumed = RangeSet((int(a), int(b)) for a, b in snapshot["consumed"])
            state.front = RangeSet((int(a), int(b)) for a, b in snapshot["front"])
            state.frontier = int(snapshot["frontier"])
            state.next_fence = max(int(snapshot["next_fence"]), fence_floor + 1)
            for fence, holder, start, stop, parts in snapshot["leases"]:
                opened = RangeSet((int(a), int(b)) for a, b in parts)
                deadline = now + options.lease_seconds
                state.leases[int(fence)] = OpenLease(str(holder), start, stop, deadline, opened)
            state.blame = {int(slot): set(holders) for slot, holders in snapshot["blame"]}
            state.quarantine = RangeSet((int(a), int(b)) for a, b in snapshot["quarantine"])
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotError(f"the snapshot is damaged: {error!r}") from error
        return state

    def check_invariants(self) -> None:
        """Assert that every slot is in exactly one place: for tests, after every event."""
        places = [self.consumed, self.front, self.quarantine]
        places += [lease.open for lease in self.leases.values()]
        parts = sorted(part for place in places for part in place)
        for (_, stop), (start, _) in pairwise(parts):
            assert stop <= start, f"a slot is in two places: {parts}"
        covered = sum(stop - start for start, stop in parts)
        assert covered == self.frontier, f"{self.frontier - covered} slots are nowhere: {parts}"
        assert not parts or parts[-1][1] <= self.frontier <= self.options.total_slots
        assert all(lease.open for lease in self.leases.values()), "an empty lease is kept"


def require_open(fence: int, open_: RangeSet, slot: int) -> None:
    """Raises LedgerError: a slot is not, or no more, open in a lease."""
    if slot not in open_:
        raise LedgerError(f"slot {slot} is not open in lease {fence}")
