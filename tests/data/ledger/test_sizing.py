"""Lease sizes follow speed and shrink towards the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.ledger import Ledger, LedgerOptions, lease_slots


def size(**changes: object) -> int:
    fields = {
        "remaining": 10**6,
        "holders": 4,
        "lease_seconds": 20.0,
        "slot_seconds": 0.1,
        "max_slots": 1000,
        **changes,
    }
    return lease_slots(**fields)  # type: ignore[arg-type]  # each test names its own fields


def test_a_holder_at_a_quarter_of_the_speed_gets_a_quarter() -> None:
    assert size(slot_seconds=0.1) == 50
    assert size(slot_seconds=0.4) == 12


def test_an_unknown_holder_gets_one_slot_to_be_measured_by() -> None:
    assert size(slot_seconds=None) == 1


def test_the_last_slots_are_shared() -> None:
    assert size(remaining=40) == 5
    assert size(remaining=3) == 1


@given(
    st.integers(0, 10**9), st.integers(0, 100), st.floats(0, 100) | st.none(), st.integers(1, 10**6)
)
def test_a_lease_has_from_one_slot_to_what_was_asked(
    remaining: int, holders: int, slot_seconds: float | None, max_slots: int
) -> None:
    slots = size(
        remaining=remaining, holders=holders, slot_seconds=slot_seconds, max_slots=max_slots
    )
    assert 1 <= slots <= max_slots


@pytest.mark.parametrize("slow", [1.0, 0.5, 0.25])
def test_dynamic_leases_beat_static_shards_with_a_straggler(slow: float) -> None:
    """Simulated: four holders, one slow; the job ends when the last one ends."""
    speeds = [1.0, 1.0, 1.0, slow]
    slots, slot_seconds = 4000, 0.01
    static = slots / len(speeds) * slot_seconds / min(speeds)
    books = Ledger(LedgerOptions(total_slots=slots, lease_seconds=20.0))
    busy_until = [0.0] * len(speeds)
    known: list[float | None] = [None] * len(speeds)
    ends = 0.0
    while not books.finished:
        who = busy_until.index(min(busy_until))
        now = busy_until[who]
        lease = books.lease(
            str(who),
            now,
            lease_slots(
                remaining=slots - books.consumed,
                holders=4,
                lease_seconds=20.0,
                slot_seconds=known[who],
                max_slots=1 << 16,
            ),
        )
        assert lease, "somebody has nothing to do while slots are left"
        seconds = slot_seconds / speeds[who]
        busy_until[who] = now + (lease.stop - lease.start) * seconds
        known[who] = seconds
        ends = max(ends, busy_until[who])
        books.complete(lease.fence, lease.start, lease.stop)
    ideal = slots * slot_seconds / sum(speeds)
    assert ends <= 1.1 * ideal
    if slow == 0.25:
        assert ends < 0.4 * static
