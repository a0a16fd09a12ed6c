"""The order of samples: a permutation of each epoch that depends on nothing but (seed, epoch)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.ledger import Permutation, SampleOrder, Slot


@given(st.integers(1, 3000), st.integers(-(2**63), 2**63))
@settings(max_examples=60, deadline=None)
def test_a_permutation_hits_every_index_once(size: int, seed: int) -> None:
    order = Permutation(size, seed).take(0, size)
    assert sorted(order) == list(range(size))


@given(st.integers(1, 2**40), st.integers(0, 2**32), st.data())
@settings(max_examples=60, deadline=None)
def test_one_index_and_many_agree(size: int, seed: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, size - 1))
    stop = min(size, start + 17)
    permutation = Permutation(size, seed)
    expected = [permutation[position] for position in range(start, stop)]
    assert list(permutation.take(start, stop)) == expected


def test_the_order_is_fixed_for_all_versions() -> None:
    """A checkpoint of an old release must go on in the same order."""
    assert list(Permutation(10, 1).take(0, 10)) == [0, 2, 9, 4, 8, 1, 6, 3, 7, 5]
    assert Permutation(1_000_000_000, 42)[123_456_789] == 739_712_728


def test_a_permutation_looks_random() -> None:
    """Neighbours do not stay neighbours, and each position is equally likely to go anywhere."""
    size = 10_000
    order = Permutation(size, 3).take(0, size)
    assert abs(np.corrcoef(np.arange(size), order)[0, 1]) < 0.05
    assert np.mean(np.abs(np.diff(order)) == 1) < 0.01
    halves = [(Permutation(100, seed).take(0, 50) < 50).mean() for seed in range(400)]
    assert abs(np.mean(halves) - 0.5) < 0.02


def test_epochs_differ_and_repeat_for_the_same_seed() -> None:
    order = SampleOrder(1000, 100, 4, epochs=3, seed=5)
    first, second = order.step_samples(0, 0), order.step_samples(1, 0)
    assert not np.array_equal(first, second)
    again = SampleOrder(1000, 100, 4, epochs=3, seed=5)
    assert np.array_equal(again.step_samples(1, 0), second)
    other = SampleOrder(1000, 100, 4, epochs=3, seed=6)
    assert not np.array_equal(other.step_samples(0, 0), first)


@given(
    st.integers(1, 500), st.integers(1, 64), st.integers(1, 64), st.integers(1, 3), st.booleans()
)
@settings(max_examples=80, deadline=None)
def test_every_sample_is_in_one_slot_of_each_epoch(
    size: int, batch: int, slots: int, epochs: int, shuffle: bool
) -> None:
    slots = min(slots, batch)
    order = SampleOrder(size, batch, slots, epochs, seed=1, shuffle=shuffle)
    for epoch in range(epochs):
        seen: list[int] = []
        for step in range(order.steps_per_epoch):
            parts = [order.samples(Slot(epoch, step, micro)) for micro in range(slots)]
            joined = np.concatenate(parts)
            assert np.array_equal(joined, order.step_samples(epoch, step))
            assert len(joined) == order.step_size(step)
            assert max(map(len, parts)) - min(map(len, parts)) <= 1, "slots are unequal"
            seen += joined.tolist()
        assert sorted(seen) == list(range(size))


@given(st.integers(0, 10**6))
def test_slots_are_numbered_over_all_epochs(number: int) -> None:
    order = SampleOrder(1000, 64, 8, epochs=10**6, seed=0)
    epoch, step, micro = order.slot(number)
    assert (epoch * order.steps_per_epoch + step) * 8 + micro == number


def test_without_shuffling_the_order_is_the_identity() -> None:
    order = SampleOrder(10, 4, 2, epochs=1, shuffle=False)
    assert [list(order.step_samples(0, step)) for step in range(3)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dataset_size": 0}, "dataset_size: 0"),
        ({"global_batch": -1}, "global_batch: -1"),
        ({"epochs": 1.5}, "epochs: 1.5"),
        ({"slots_per_step": 65}, "slots_per_step: 65; at most global_batch, which is 64"),
        ({"global_batch": 1 << 30}, "global_batch"),
    ],
)
def test_a_wrong_size_is_refused_by_name(changes: dict[str, int], field: str) -> None:
    fields = {"dataset_size": 100, "global_batch": 64, "slots_per_step": 8, "epochs": 1}
    with pytest.raises(ValueError, match=field):
        SampleOrder(**{**fields, **changes})
