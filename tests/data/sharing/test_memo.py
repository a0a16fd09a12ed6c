"""What is kept of a common order: until all have had it, and as long as there is room."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.sharing.memo import Memo


def get(memo: Memo, member: str, name: str, size: int = 1) -> bool:
    """Whether it was there."""
    memo.join(member)
    there = memo.has(name)
    if not there:
        memo.put(name, size)
    memo.note_had(member, name)
    memo.check_invariants()
    return there


def test_what_one_has_had_is_there_for_the_others() -> None:
    memo = Memo(10)
    memo.join("b")
    assert not get(memo, "a", "x")
    assert get(memo, "b", "x")
    assert get(memo, "c", "x"), "for one that comes later too"
    assert (memo.made, memo.taken) == (1, 3)


def test_where_room_is_short_what_all_have_had_goes_first() -> None:
    memo = Memo(2)
    memo.join("b")
    get(memo, "a", "old")
    get(memo, "a", "both")
    get(memo, "b", "both")
    get(memo, "a", "new")
    assert memo.kept == {"old", "new"}
    assert memo.take_dropped() == ["both"]
    assert not memo.is_gone("both")
    get(memo, "a", "newest")
    assert memo.is_gone("old")
    assert memo.evicted == 1
    assert not get(memo, "b", "old"), "made again"
    assert not memo.is_gone("old")


def test_one_that_is_larger_than_the_window_is_kept_alone() -> None:
    memo = Memo(2)
    get(memo, "a", "x")
    memo.join("b")
    get(memo, "a", "large", 9)
    assert memo.kept == {"large"}
    with pytest.raises(ValueError, match="at least 1"):
        Memo(0)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["get", "leave"]), st.integers(0, 6)),
        max_size=60,
    )
)
def test_any_interleaving(said: list[tuple[str, str, int]]) -> None:
    memo, kept = Memo(5), {}
    for member, what, number in said:
        if what == "leave":
            memo.leave(member)
        else:
            name: Any = number
            assert get(memo, member, name, 1 + number % 3) == (name in kept)
            kept[name] = True
        for name in memo.take_dropped():
            del kept[name]
        assert memo.kept == set(kept)
        memo.check_invariants()
