"""The ledger's rules, one by one, and the known failures of others."""

from __future__ import annotations

import pytest

from penstock.base.enums import Guarantee
from penstock.data.ledger import (
    Ledger,
    LedgerError,
    LedgerOptions,
    LedgerState,
    QuarantineError,
    SnapshotError,
    StaleLeaseError,
)


def ledger(slots: int = 100, **options: object) -> Ledger:
    # Each test names its own fields.
    return Ledger(LedgerOptions(total_slots=slots, lease_seconds=10, **options))  # type: ignore[arg-type]


def test_leases_go_out_in_order_and_never_overlap() -> None:
    books = ledger()
    leases = [books.lease(f"w{i}", 0.0, 30) for i in range(4)]
    assert [(lease.start, lease.stop) for lease in leases if lease] == [
        (0, 30),
        (30, 60),
        (60, 90),
        (90, 100),
    ]
    assert books.lease("w4", 0.0, 1) is None


def test_a_returned_lease_goes_out_again_first() -> None:
    books = ledger()
    first, second = books.lease("a", 0.0, 10), books.lease("b", 0.0, 10)
    assert first
    assert second
    books.complete(first.fence, 0, 4)
    books.give_back(first.fence)
    again = books.lease("b", 0.0, 10)
    assert again
    assert (again.start, again.stop) == (4, 10)


def test_a_long_lease_ends_with_a_whole_step() -> None:
    books = ledger()
    lease = books.lease("a", 0.0, 30, align=8)
    assert lease
    assert (lease.start, lease.stop) == (0, 24)


def test_an_expired_lease_goes_to_the_next_holder_and_its_completion_is_refused() -> None:
    books = ledger()
    old = books.lease("dead", 0.0, 10)
    assert old
    assert books.expire(9.9) == []
    assert [lease.fence for lease in books.expire(10.0)] == [old.fence]
    new = books.lease("alive", 10.0, 10)
    assert new
    assert (new.start, new.stop) == (old.start, old.stop)
    with pytest.raises(StaleLeaseError):
        books.complete(old.fence, old.start, old.stop)
    assert [lease.fence for lease in books.leases()] == [new.fence], "the new lease was closed"
    assert books.consumed == 0


def test_renewing_moves_the_deadline_of_all_of_a_holders_leases() -> None:
    books = ledger()
    books.lease("a", 0.0, 10)
    books.lease("a", 0.0, 10)
    books.lease("b", 0.0, 10)
    assert books.renew("a", 5.0) == 2
    assert [lease.holder for lease in books.expire(12.0)] == ["b"]


def test_a_repeated_completion_changes_nothing() -> None:
    books = ledger()
    lease = books.lease("a", 0.0, 10)
    assert lease
    assert books.complete(lease.fence, 0, 5) == 5
    assert books.complete(lease.fence, 0, 5) == 0
    assert books.complete(lease.fence, 3, 10) == 5
    assert books.consumed == 10
    assert books.leases() == []


def test_a_completion_outside_the_lease_is_refused() -> None:
    books = ledger()
    lease = books.lease("a", 0.0, 10)
    assert lease
    with pytest.raises(LedgerError, match=r"5\.\.11 are not part of lease 1, which is 0\.\.10"):
        books.complete(lease.fence, 5, 11)


def test_a_slot_is_never_dropped_however_often_one_holder_fails_on_it() -> None:
    books = ledger(slots=1)
    for _ in range(10):
        lease = books.lease("same", 0.0, 1)
        assert lease, "the slot was dropped"
        assert not books.fail(lease.fence, 0)
    assert not books.finished


def test_three_different_holders_put_a_slot_into_quarantine_and_the_epoch_says_so() -> None:
    books = ledger(slots=2)
    for holder in ("a", "b", "c"):
        lease = books.lease(holder, 0.0, 1)
        assert lease
        quarantined = books.fail(lease.fence, 0)
    assert quarantined
    assert books.quarantine == [(0, 1)]
    rest = books.lease("a", 0.0, 2)
    assert rest
    assert (rest.start, rest.stop) == (1, 2)
    books.check_end()
    books.complete(rest.fence, 1, 2)
    assert not books.finished
    with pytest.raises(QuarantineError, match=r"slots 0\.\.1 failed on 3 different holders"):
        books.check_end()


def test_members_who_share_a_lease_are_blamed_by_their_own_names() -> None:
    books = ledger(slots=4)
    for member in ("a", "b", "b", "c"):
        assert not books.quarantine, "the same member twice is one holder"
        lease = books.lease("group-1", 0.0, 4)
        assert lease
        books.fail(lease.fence, 1, member)
        books.adopt(0)  # the group is formed anew where its model is
    assert books.quarantine == [(1, 2)]


@pytest.mark.parametrize(
    ("position", "left"), [(0, [(0, 2), (3, 6)]), (2, [(3, 6)]), (1, [(1, 2), (3, 6)])]
)
def test_a_rollback_leaves_quarantined_slots_where_they_are(
    position: int, left: list[tuple[int, int]]
) -> None:
    books = ledger(slots=6, skip_bad=True)
    for holder in ("a", "b", "c"):
        lease = books.lease(holder, 0.0, 6)
        assert lease
        books.fail(lease.fence, 2)
        books.adopt(position)
    books.state.check_invariants()
    assert books.quarantine == [(2, 3)]
    given = []
    while (lease := books.lease("a", 0.0, 6)) is not None:
        given.append((lease.start, lease.stop))
        books.complete(lease.fence, lease.start, lease.stop)
    assert given == left
    assert books.finished


def test_with_skip_bad_the_epoch_ends_without_the_quarantined_slots() -> None:
    books = ledger(slots=2, skip_bad=True)
    for holder in ("a", "b", "c"):
        lease = books.lease(holder, 0.0, 1)
        assert lease
        books.fail(lease.fence, 0)
    rest = books.lease("a", 0.0, 2)
    assert rest
    books.complete(rest.fence, 1, 2)
    assert books.finished
    assert books.quarantine == [(0, 1)], "what was skipped must stay visible"
    books.check_end()


def test_at_most_once_means_that_handing_out_is_consuming() -> None:
    books = ledger(slots=10, guarantee=Guarantee.AT_MOST_ONCE)
    lease = books.lease("a", 0.0, 4)
    assert lease
    assert books.watermark == 4
    assert books.expire(1000.0) == []
    books.complete(lease.fence, 0, 4)
    following = books.lease("b", 0.0, 10)
    assert following
    assert following.start == 4
    assert books.finished


def test_unsharded_needs_a_ledger_for_each_holder() -> None:
    with pytest.raises(ValueError, match="Unsharded"):
        ledger(guarantee=Guarantee.UNSHARDED)


def test_going_back_undoes_what_came_later_and_ends_all_leases() -> None:
    books = ledger()
    lease = books.lease("a", 0.0, 50)
    assert lease
    books.complete(lease.fence, 0, 40)
    books.adopt(16)
    assert books.watermark == books.consumed == 16
    with pytest.raises(StaleLeaseError):
        books.complete(lease.fence, 40, 50)
    again = books.lease("a", 0.0, 10)
    assert again
    assert again.start == 16
    assert again.fence > lease.fence, "a fencing number came back"


def test_a_model_may_be_ahead_of_the_ledger_but_not_of_the_data() -> None:
    books = ledger()
    books.adopt(30)
    assert books.watermark == 30
    with pytest.raises(LedgerError, match="the job has 100 slots"):
        books.adopt(101)


def test_a_snapshot_of_another_dataset_is_refused() -> None:
    snapshot = ledger(slots=100).snapshot()
    with pytest.raises(SnapshotError, match="total_slots: the snapshot has 100, the job has 99"):
        LedgerState.restore(LedgerOptions(total_slots=99), snapshot, 0.0)


@pytest.mark.parametrize("change", [{"version": 2}, {"leases": None}, {"consumed": [["x", 1]]}])
def test_a_damaged_snapshot_is_refused(change: dict[str, object]) -> None:
    books = ledger()
    with pytest.raises(SnapshotError):
        LedgerState.restore(books.state.options, {**books.snapshot(), **change}, 0.0)


def test_a_lease_outlives_a_restart_of_the_keeper() -> None:
    books = ledger()
    lease = books.lease("a", 0.0, 10)
    assert lease
    books.complete(lease.fence, 0, 3)
    state = LedgerState.restore(books.state.options, books.snapshot(), now=100.0)
    later = Ledger(books.state.options, state=state)
    assert later.expire(109.0) == []
    assert later.complete(lease.fence, 3, 10) == 7
    assert later.watermark == 10
    fresh = later.lease("b", 100.0, 1)
    assert fresh
    assert fresh.fence > lease.fence
