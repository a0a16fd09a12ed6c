"""Range sets behave as sets of integers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.data.ledger import RangeSet

RANGE = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted).map(tuple)
CHANGES = st.lists(st.tuples(st.sampled_from(["add", "remove"]), RANGE), max_size=30)


@given(CHANGES, RANGE)
def test_a_range_set_is_a_set(changes: list[tuple[str, tuple[int, int]]], probe: tuple[int, int]):
    ranges, model = RangeSet(), set[int]()
    for what, (start, stop) in changes:
        getattr(ranges, what)(start, stop)
        model = (
            model | set(range(start, stop)) if what == "add" else model - set(range(start, stop))
        )
    parts = list(ranges)
    assert {value for start, stop in parts for value in range(start, stop)} == model
    assert ranges.total == len(model)
    assert all(start < stop for start, stop in parts)
    gaps = [later[0] - earlier[1] for earlier, later in pairwise(parts)]
    assert all(gap > 0 for gap in gaps), "ranges touch"
    assert ranges.watermark == next(value for value in range(100) if value not in model)
    start, stop = probe
    inside = set(range(start, stop))
    assert ranges.covers(start, stop) == (inside <= model)
    assert ranges.overlaps(start, stop) == bool(inside & model)
    cut = ranges.intersection(start, stop)
    assert {value for low, high in cut for value in range(low, high)} == inside & model


def test_a_billion_integers_are_one_pair() -> None:
    ranges = RangeSet()
    for start in range(0, 1_000_000_000, 100_000_000):
        ranges.add(start, start + 100_000_000)
    assert list(ranges) == [(0, 1_000_000_000)]


def test_a_copy_is_independent() -> None:
    ranges = RangeSet([(0, 3)])
    other = ranges.copy()
    other.add(3, 4)
    assert list(ranges) == [(0, 3)]
    assert ranges != other
