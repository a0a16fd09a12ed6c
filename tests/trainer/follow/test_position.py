"""Every sample once, over any sequence of worlds and stops."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.follow.position import (
    Dealing,
    batch_sizes,
    deal,
    first_of,
    passed_over,
    size_of,
    step_counts,
    without_first,
)

worlds = st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(0, 12))
"""Processes, samples of one in a step, and steps until the next stop."""


def deal_all(left: list[int], first: list[int], dealing: Dealing) -> list[list[list[int]]]:
    """The batches of every rank."""
    return [deal(left, first, replace(dealing, rank=rank)) for rank in range(dealing.world)]


@given(st.integers(1, 150), st.lists(worlds, max_size=6), st.booleans(), st.booleans())
def test_each_sample_is_taken_once(
    samples: int, lives: list[tuple[int, int, int]], drop_uneven: bool, drop_short: bool
) -> None:
    todo, taken, evened = ((0, samples),), [], 0
    order = list(range(samples))
    for world, batch, steps in [*lives, (1, 1, samples)]:
        dealing = Dealing(world, 0, batch, drop_uneven, drop_short)
        left = [at for begin, end in todo for at in range(begin, end)]
        ranks = deal_all(left, order, dealing)
        counts = step_counts(len(left), dealing)
        assert {len(each) for each in ranks} == {len(counts)}, "ranks have as many batches"
        for number, count in enumerate(counts[:steps]):
            sizes = {len(each[number]) for each in ranks}
            assert len(sizes) == 1
            assert 0 < sizes.pop() <= batch
            step = [
                at for pair in zip(*(each[number] for each in ranks), strict=True) for at in pair
            ]
            taken += step[:count]
            evened += len(step) - count
        todo = without_first(todo, sum(counts[:steps]))
    assert taken == order
    assert evened <= sum(world - 1 for world, _, _ in lives)
    if drop_uneven:
        assert not evened


@given(st.integers(0, 200), st.integers(1, 5), st.integers(1, 7), st.integers(1, 4), st.data())
def test_a_library_gets_as_many_batches_as_it_counts_on(
    samples: int, world: int, batch: int, accumulation: int, data: st.DataObject
) -> None:
    left = data.draw(st.integers(0, samples))
    dealing = Dealing(world, 0, batch)
    whole = len(batch_sizes(samples, dealing))
    passed = passed_over(left, whole, dealing, accumulation)
    counted_on = replace(dealing, batches=whole - passed)
    assert passed % accumulation == 0
    sizes = batch_sizes(left, counted_on)
    assert sum(step_counts(left, counted_on)) == left
    assert len(sizes) == min(whole - passed, -(-left // world))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=4), st.integers(0, 40))
def test_ranges_are_cut_without_a_loss(pairs: list[tuple[int, int]], count: int) -> None:
    ranges = tuple((begin, begin + length) for begin, length in pairs)
    each = [at for begin, end in ranges for at in range(begin, end)]
    first, rest = first_of(ranges, count), without_first(ranges, count)
    assert [at for begin, end in (*first, *rest) for at in range(begin, end)] == each
    assert size_of(first) == min(count, len(each))
