"""How many steps may be under way: by need, in the memory that there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.window.window_bound import (
    ASSUMED_BYTES,
    HELD_BATCHES,
    MAKING_COPIES,
    SMALL_STEPS,
    Limit,
    WindowBound,
    bound_window,
)

MB = 1 << 20
GB = 1 << 30
PLENTY = 1 << 50


@given(
    makers=st.integers(1, 300),
    prefetch=st.integers(1, 16),
    size=st.integers(0, 4 * GB),
    room=st.integers(0, 512 * GB),
    lookahead=st.none() | st.integers(1, 100),
)
def test_it_never_takes_more_memory_than_there_is_but_for_one_step(
    makers: int, prefetch: int, size: int, room: int, lookahead: int | None
) -> None:
    bound = bound_window(
        makers=makers, prefetch=prefetch, batch_bytes=size, room_bytes=room, lookahead=lookahead
    )
    assert 1 <= bound.makers <= makers
    assert bound.ahead >= 1
    if lookahead is not None:
        assert bound.ahead <= lookahead
    taken = (bound.ahead + HELD_BATCHES + MAKING_COPIES * bound.makers) * (size or ASSUMED_BYTES)
    assert taken <= room or bound == WindowBound(1, 1, Limit.MEMORY)
    if bound.limit is Limit.NEED:
        assert bound.makers == makers
        assert bound.ahead >= 2 * makers


@given(
    makers=st.integers(1, 64),
    size=st.integers(1, GB),
    room=st.integers(0, 64 * GB),
    more=st.integers(0, 64 * GB),
)
def test_more_memory_never_lets_fewer_make_batches(
    makers: int, size: int, room: int, more: int
) -> None:
    less = bound_window(makers=makers, prefetch=2, batch_bytes=size, room_bytes=room)
    great = bound_window(makers=makers, prefetch=2, batch_bytes=size, room_bytes=room + more)
    assert great.makers >= less.makers


@pytest.mark.parametrize(
    ("makers", "size", "room", "expected"),
    [
        (12, 154 * MB, PLENTY, WindowBound(24, 12)),
        (1, 154 * MB, PLENTY, WindowBound(2, 1)),
        (2, 64 << 10, PLENTY, WindowBound(SMALL_STEPS, 2)),
        (2, 8 * MB, PLENTY, WindowBound(8, 2)),
        (12, 150 * MB, 2 * GB, WindowBound(7, 2, Limit.MEMORY)),
        (12, 4 * GB, 2 * GB, WindowBound(1, 1, Limit.MEMORY)),
        (12, 0, 2 * GB, WindowBound(6, 2, Limit.MEMORY)),
    ],
)
def test_what_programs_get(makers: int, size: int, room: int, expected: WindowBound) -> None:
    assert bound_window(makers=makers, prefetch=2, batch_bytes=size, room_bytes=room) == expected


def test_a_sampler_that_may_depend_on_the_training_is_not_asked_further_ahead() -> None:
    bound = bound_window(makers=8, prefetch=2, batch_bytes=MB, room_bytes=PLENTY, lookahead=4)
    assert bound == WindowBound(4, 4, Limit.SAMPLER)
