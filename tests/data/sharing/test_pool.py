"""What a data worker holds for a group of jobs: who gets what, what is made, what is dropped."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.data.sharing.pool import MAX_MEMBERS, Pick, Pool, SharingError


def everything(tiles: int = 6) -> NDArray[np.bool_]:
    return np.ones(tiles, np.bool_)


def pool_of(*members: str, tiles: int = 6, window: int = 100) -> Pool:
    pool = Pool(tiles, window, random.Random(1))
    for member in members:
        pool.join(member, everything(tiles))
    return pool


def get(pool: Pool, member: str, count: int = 1, size: int = 1) -> list[Pick]:
    """What a member gets, whatever has to be made for it being made."""
    picks = pool.choose(member, count)
    for pick in picks:
        if not pick.held:
            pool.note_made(member, pick.instance, size)
    pool.check_invariants()
    return picks


def test_what_is_made_for_one_is_the_others_too() -> None:
    pool = pool_of("a", "b", "c")
    first = get(pool, "a", 2)
    assert not any(pick.held for pick in first)
    assert pool.ready("b") == 2
    second = get(pool, "b", 2)
    assert [(one.tile, one.instance) for one in second] == [
        (one.tile, one.instance) for one in first
    ]
    assert all(pick.held for pick in second)
    assert len(pool.held) == 2
    get(pool, "c", 2)
    assert (pool.made, pool.taken) == (2, 6)
    assert pool.take_dropped() == []


def test_what_everybody_has_had_stays_for_who_comes_while_there_is_room() -> None:
    pool = pool_of("a", window=2)
    first, second = get(pool, "a", 2)
    pool.join("b", everything())
    assert {pick.instance for pick in get(pool, "b", 2)} == {first.instance, second.instance}
    (third,) = get(pool, "a")
    assert set(pool.held) == {second.instance, third.instance}, "nobody lacks the oldest"
    assert pool.evicted == 0, "nobody has to have it made again"
    assert pool.take_dropped() == [first.instance]
    assert pool.take_dropped() == []


def test_what_lies_there_longest_is_taken_first() -> None:
    pool = pool_of("a", "b")
    made = [get(pool, "a")[0].instance for _ in range(4)]
    assert [get(pool, "b")[0].instance for _ in range(4)] == made


def test_what_most_others_lack_is_made_first() -> None:
    pool = pool_of("a", "b", "c")
    rest = np.array([True, True, False, False, False, False])
    pool.join("b", rest)
    pool.join("c", rest)
    assert {get(pool, "a")[0].tile, get(pool, "a")[0].tile} == {0, 1}


def test_each_epoch_has_another_order() -> None:
    pool = pool_of("a", tiles=50)
    orders = []
    for _ in range(2):
        pool.join("a", everything(50))
        orders.append([get(pool, "a")[0].tile for _ in range(50)])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(50))
    assert orders[0] != orders[1]


def test_nobody_gets_an_instance_twice() -> None:
    pool = pool_of("a", "b", tiles=1)
    first = get(pool, "a")
    pool.join("a", everything(1))
    again = get(pool, "a")
    assert not again[0].held, "in its next epoch neither"
    assert get(pool, "b")[0].instance == first[0].instance
    pool.join("b", everything(1))
    assert get(pool, "b")[0].instance == again[0].instance, "kept for b's next epoch"


def test_a_member_that_lacks_less_than_it_asks_for_gets_nothing() -> None:
    pool = pool_of("a")
    get(pool, "a", 4)
    assert pool.choose("a", 3) == []
    assert pool.lacks("a") == 2
    assert len(get(pool, "a", 2)) == 2


def test_where_room_is_short_what_fewest_lack_goes() -> None:
    pool = pool_of("a", "b", "c", window=2)
    first, second = get(pool, "a", 2)
    get(pool, "b")  # takes the first, which only c lacks now
    (third,) = get(pool, "a")
    assert set(pool.held) == {second.instance, third.instance}
    assert pool.evicted == 1
    assert pool.take_dropped() == [first.instance]
    assert pool.held_bytes == 2


def test_a_smaller_window_drops_what_does_not_fit() -> None:
    pool = pool_of("a", "b")
    made = [get(pool, "a")[0].instance for _ in range(4)]
    pool.resize(2)
    pool.check_invariants()
    assert list(pool.held) == made[2:]
    pool.resize(0)
    assert list(pool.held) == made[3:], "one is never too large"


def test_it_is_idle_when_nobody_is_to_get_anything() -> None:
    pool = pool_of("a", tiles=2)
    assert not pool.idle
    get(pool, "a", 2)
    assert pool.idle


def test_of_many_tiles_those_come_first_that_most_lack() -> None:
    pool = pool_of("a", tiles=500)
    for number in range(5):
        pool.join(f"other {number}", np.arange(500) < 100 * number)
    counts = [5 - pick.tile // 100 for pick in get(pool, "a", 450)]
    assert counts == sorted(counts, reverse=True)


def test_a_tile_that_is_larger_than_the_window_is_still_given() -> None:
    pool = pool_of("a", "b", window=2)
    (made,) = get(pool, "a", size=50)
    assert get(pool, "b")[0].instance == made.instance


def test_what_only_a_lost_member_lacked_goes_first() -> None:
    pool = pool_of("a", "b", window=2)
    first, second = get(pool, "a", 2)
    pool.leave("b")
    pool.join("c", ~everything())
    pool.join("d", everything())
    get(pool, "a")
    assert first.instance not in pool.held
    assert second.instance in pool.held
    pool.check_invariants()
    with pytest.raises(SharingError, match="b has not joined"):
        pool.choose("b", 1)


def test_what_could_not_be_made_is_held_by_nobody() -> None:
    pool = pool_of("a", "b")
    (pick,) = pool.choose("a", 1)
    pool.note_failed("a", pick.instance)
    assert not pool.note_made("a", pick.instance, 1)
    assert pool.held == {}
    pool.check_invariants()


def test_what_is_made_for_somebody_who_has_gone_is_not_kept() -> None:
    pool = pool_of("a", "b")
    (pick,) = pool.choose("a", 1)
    pool.leave("a")
    assert not pool.note_made("a", pick.instance, 1)
    pool.check_invariants()


def test_members_and_arrays_have_bounds() -> None:
    pool = pool_of(*(f"job-{number}" for number in range(MAX_MEMBERS)))
    with pytest.raises(SharingError, match="share already"):
        pool.join("one more", everything())
    with pytest.raises(SharingError, match="6 booleans are wanted"):
        pool.join("job-0", everything(5))
    for arguments in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            Pool(*arguments, random.Random(1))
