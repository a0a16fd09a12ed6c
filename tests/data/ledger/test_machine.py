"""Any interleaving of what can happen to a ledger, against a model that remembers every slot.

The model is the history that one surviving training model has seen: a plain list of consumed slots,
cut back by rollbacks. Whatever happens (leases, expiries, late, repeated and forged completions,
failures, rescales, crashes with a journal that was cut at any byte, rollbacks), no slot is in that
history twice, and once every holder has finished its work, each slot is in it once.
"""

from __future__ import annotations

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from penstock.data.ledger import Lease, Ledger, LedgerError, LedgerOptions, StaleLeaseError
from penstock.data.ledger.journal import append, begin, recover

LEASE_SECONDS = 10.0
HOLDERS = st.sampled_from(["a", "b", "c", "d"])


class LedgerMachine(RuleBasedStateMachine):
    """Drives one ledger and its journal; see the module's docstring."""

    leases = Bundle("leases")

    @initialize(slots=st.integers(1, 60), skip_bad=st.booleans())
    def begin_job(self, slots: int, skip_bad: bool) -> None:
        self.options = LedgerOptions(slots, LEASE_SECONDS, skip_bad=skip_bad)
        self.ledger = Ledger(self.options)
        self.now = 0.0
        self.history: list[int] = []
        self.journal = begin(self.ledger)
        self.durable = [(len(self.journal), [])]  # length of the file, history as of then
        self.fences: set[int] = set()

    @rule(target=leases, holder=HOLDERS, count=st.integers(1, 20), align=st.integers(1, 4))
    def lease(self, holder: str, count: int, align: int) -> object:
        lease = self.ledger.lease(holder, self.now, count, align=align)
        if lease is None:
            return multiple()
        assert lease.fence not in self.fences, "a fencing number was used twice"
        self.fences.add(lease.fence)
        assert 1 <= lease.stop - lease.start <= count
        return lease

    @rule(lease=leases, data=st.data())
    def complete_part(self, lease: Lease, data: st.DataObject) -> None:
        start = data.draw(st.integers(lease.start, lease.stop - 1))
        stop = data.draw(st.integers(start + 1, lease.stop))
        self.consume(lease, start, stop)

    @rule(lease=leases)
    def complete(self, lease: Lease) -> None:
        self.consume(lease, lease.start, lease.stop)

    @rule(lease=leases, member=st.sampled_from(["", "x", "y", "z"]), data=st.data())
    def fail(self, lease: Lease, member: str, data: st.DataObject) -> None:
        """The holder failed, or (in a group) one of those who share its lease."""
        slot = data.draw(st.integers(lease.start, lease.stop - 1))
        before, state = self.ledger.quarantine, self.ledger.snapshot()
        try:
            quarantined = self.ledger.fail(lease.fence, slot, member)
        except LedgerError:
            assert self.ledger.snapshot() == state, "a refused call changed something"
        else:
            assert quarantined == (self.ledger.quarantine != before)

    @rule(lease=leases)
    def give_back(self, lease: Lease) -> None:
        try:
            self.ledger.give_back(lease.fence)
        except StaleLeaseError:
            assert lease.fence not in {each.fence for each in self.ledger.leases()}

    @rule(holder=HOLDERS)
    def renew(self, holder: str) -> None:
        self.ledger.renew(holder, self.now)

    @rule(holder=HOLDERS)
    def release(self, holder: str) -> None:
        self.ledger.release(holder)
        assert not self.ledger.leases(holder)

    @rule(seconds=st.floats(0.1, 2 * LEASE_SECONDS))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for lease in self.ledger.expire(self.now):
            assert lease.deadline <= self.now

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, self.ledger.watermark))
        self.ledger.adopt(position)
        self.history = [slot for slot in self.history if slot < position]

    @rule()
    def sync(self) -> None:
        """Events reach the disk in batches; each record has its own place in the file."""
        self.write_events()

    @rule()
    def compact(self) -> None:
        self.ledger.take_events()
        self.journal = begin(self.ledger)
        self.durable = [(len(self.journal), list(self.history))]

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """The keeper dies; its file is cut at any byte behind its head. The model lives on."""
        self.write_events()
        cut = data.draw(st.integers(self.durable[0][0], len(self.journal)))
        floor = max(self.fences, default=0)
        recovered = recover(self.journal[:cut], self.options, self.now, fence_floor=floor)
        assert recovered.good_bytes == max(size for size, _ in self.durable if size <= cut)
        self.ledger = recovered.ledger
        # The surviving model says where it is: slots below the gap-free part of its history. What
        # it has seen beyond it, under leases, is undone with it (a rollback of the training).
        seen = set(self.history)
        position = next(slot for slot in range(self.options.total_slots + 1) if slot not in seen)
        self.ledger.adopt(position)
        self.history = [slot for slot in self.history if slot < position]
        self.journal = begin(self.ledger)
        self.ledger.take_events()
        self.durable = [(len(self.journal), list(self.history))]

    @rule()
    def restart_in_good_order(self) -> None:
        """Everything was written: the new keeper has the same state, leases included."""
        self.write_events()
        recovered = recover(self.journal, self.options, self.now)
        before = self.ledger.snapshot()
        assert recovered.lost_bytes == 0
        assert recovered.ledger.snapshot() == before
        self.ledger = recovered.ledger

    @invariant()
    def every_slot_is_in_one_place(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.state.check_invariants()

    @invariant()
    def nothing_was_consumed_twice(self) -> None:
        if hasattr(self, "ledger"):
            assert len(self.history) == len(set(self.history)), "a slot was repeated"

    def teardown(self) -> None:
        """However it went so far: the holders that are left bring the epoch to its end."""
        if not hasattr(self, "ledger"):
            return
        self.now += 100 * LEASE_SECONDS
        self.ledger.expire(self.now)
        while (lease := self.ledger.lease("last", self.now, 7)) is not None:
            self.consume(lease, lease.start, lease.stop)
        bad = {slot for start, stop in self.ledger.quarantine for slot in range(start, stop)}
        assert sorted(self.history) == [
            slot for slot in range(self.options.total_slots) if slot not in bad
        ]
        assert self.ledger.finished == (not bad or self.options.skip_bad)

    def consume(self, lease: Lease, start: int, stop: int) -> None:
        """A holder trained on slots and says so; what the ledger refuses, the model drops."""
        before = self.ledger.consumed
        fresh = [slot for slot in range(start, stop) if slot not in self.history]
        try:
            counted = self.ledger.complete(lease.fence, start, stop)
        except StaleLeaseError:
            assert self.ledger.consumed == before
            return
        assert counted == self.ledger.consumed - before
        if counted:
            bad = {s for low, high in self.ledger.quarantine for s in range(low, high)}
            self.history += [slot for slot in fresh if slot not in bad and self.took(slot)]
            assert len(self.history) == self.ledger.consumed

    def took(self, slot: int) -> bool:
        """Whether the ledger counts a slot as consumed now."""
        parts = self.ledger.snapshot()["consumed"]
        return any(start <= slot < stop for start, stop in parts)

    def write_events(self) -> None:
        for event in self.ledger.take_events():
            self.journal += append([event])
            self.durable.append((len(self.journal), []))


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=int(os.environ.get("PENSTOCK_LEDGER_RUNS", "100")),
    stateful_step_count=40,
    deadline=None,
)
