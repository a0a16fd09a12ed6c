"""Data workers of a share group: as many as one job needs, and each member its part of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.throughput.decision.share_group import divide, group_need

UIDS = [f"uid-{number}" for number in range(8)]
HAVING = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 40), max_size=12)


def test_the_fastest_member_decides() -> None:
    rates = dict(zip(UIDS, (10.0, 20.0, 100.0, 30.0), strict=False))
    assert group_need(3, 30.0, rates.values()) == pytest.approx(10)
    assert group_need(10, 100.0, rates.values()) == 10


@pytest.mark.parametrize("rates", [[], [float("inf")], [float("nan")], [0.0], [5.0]])
def test_rates_that_say_nothing_leave_the_need_as_it_is(rates: list[float]) -> None:
    assert group_need(4, 0.0, rates) == 4
    assert group_need(4, 5.0, rates) == 4


def test_missing_ones_go_to_the_first_uids() -> None:
    assert divide(3, dict.fromkeys("abcde", 0)) == {"a": 1, "b": 1, "c": 1, "d": 0, "e": 0}
    assert divide(7, dict.fromkeys("cab", 0)) == {"a": 3, "b": 2, "c": 2}


def test_a_member_that_joins_or_ends_moves_no_data_worker() -> None:
    parts = divide(10, dict.fromkeys(UIDS, 0))
    assert divide(10, {**parts, "a-newcomer": 0}) == {**parts, "a-newcomer": 0}
    left = {uid: count for uid, count in parts.items() if uid != UIDS[0]}
    after = divide(10, left)
    assert sum(after.values()) == 10
    assert all(after[uid] >= count for uid, count in left.items())


def test_they_drain_when_the_need_falls_from_those_with_most() -> None:
    assert divide(4, {"a": 3, "b": 3, "c": 1}) == {"a": 2, "b": 1, "c": 1}
    assert divide(0, {"a": 2, "b": 1}) == {"a": 0, "b": 0}


def one_by_one(need: int, have: dict[str, int]) -> dict[str, int]:
    """The rule, as it is said."""
    parts = dict(have)
    while parts and sum(parts.values()) < need:
        parts[min(parts, key=lambda uid: (parts[uid], uid))] += 1
    while parts and sum(parts.values()) > need:
        most = max(parts.values())
        parts[max(uid for uid, count in parts.items() if count == most)] -= 1
    return parts


@given(need=st.integers(0, 300), have=HAVING)
def test_they_are_divided_one_by_one(need: int, have: dict[str, int]) -> None:
    assert divide(need, have) == one_by_one(need, have)


def test_a_member_that_says_anything_costs_no_time() -> None:
    """What members say of their speed and their data workers is theirs to say."""
    most = 1 << 53
    assert divide(most, {"a": 0, "b": 3}) == {"a": most // 2, "b": most // 2}
    assert divide(5, {"a": most, "b": 3}) == {"a": 3, "b": 2}
    assert group_need(4, 1e-300, [1e-300, 1e12]) == 4


@given(need=st.integers(0, 300), have=HAVING)
def test_parts_add_up_to_the_need_and_change_no_more_than_they_must(
    need: int, have: dict[str, int]
) -> None:
    parts = divide(need, have)
    assert parts.keys() == have.keys()
    if not have:
        return
    assert sum(parts.values()) == need
    changed = sum(abs(parts[uid] - have[uid]) for uid in have)
    assert changed == abs(need - sum(have.values())), "nothing moves from one to another"
    assert divide(need, parts) == parts, "whoever is asked later gives the same answer"


@given(need=st.integers(0, 60), members=st.integers(1, 20))
def test_with_nothing_there_it_is_divided_evenly(need: int, members: int) -> None:
    parts = divide(need, {f"{number:02}": 0 for number in range(members)})
    assert max(parts.values()) - min(parts.values()) <= 1
    assert list(parts.values()) == sorted(parts.values(), reverse=True)
