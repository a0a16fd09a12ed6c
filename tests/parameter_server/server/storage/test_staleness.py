"""No batch that was let in is more stale than the bound, and somebody can always go on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.parameter_server.server.storage.staleness import BATCH_SECONDS, Gate


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=120),
)
def test_the_bound_holds_whoever_begins_and_pushes_when(
    bounds: list[int], actions: list[tuple[bool, int]]
) -> None:
    gate, version, slot = Gate(), 0, 0
    began: dict[int, tuple[int, int]] = {}  # slot: version, bound
    for begins, choice in actions:
        if begins:
            bound = bounds[choice % len(bounds)]
            if gate.begin(slot, bound, version, "worker", 0.0):
                began[slot] = (version, bound)
            else:
                assert began, "nothing is open, and yet nothing may begin"
            slot += 1
        elif began:
            pushed = list(began)[choice % len(began)]
            seen, bound = began.pop(pushed)
            assert version - seen <= bound
            assert gate.end(pushed)
            version += 1
    assert len(gate) == len(began)


def test_a_bound_of_none_is_one_batch_at_a_time() -> None:
    gate = Gate()
    assert gate.begin(0, 0, 0, "a", 0.0)
    assert not gate.begin(1, 0, 0, "b", 0.0)
    gate.end(0)
    assert gate.begin(1, 0, 1, "b", 0.0)


def test_a_bound_of_n_lets_n_others_work_beside_a_batch() -> None:
    gate = Gate()
    assert [gate.begin(slot, 3, 0, slot, 0.0) for slot in range(5)] == [True] * 4 + [False]


def test_a_batch_may_begin_again() -> None:
    gate = Gate()
    assert gate.begin(0, 0, 0, "a", 0.0)
    assert gate.begin(0, 0, 0, "b", 0.0)
    assert len(gate) == 1


def test_a_caller_that_is_gone_holds_up_nobody() -> None:
    gate = Gate()
    gate.begin(0, 0, 0, "a", 0.0)
    assert not gate.leave("b")
    assert gate.leave("a")
    assert gate.begin(1, 0, 0, "b", 0.0)


def test_a_batch_that_takes_too_long_holds_up_nobody() -> None:
    gate = Gate()
    gate.begin(0, 0, 0, "a", 0.0)
    assert not gate.begin(1, 0, 0, "b", BATCH_SECONDS - 1)
    assert gate.begin(1, 0, 0, "b", BATCH_SECONDS)
    assert not gate.end(0)
