"""Orders by length: every sample once, steps of like length, the same for any number of slots."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data import Loader
from penstock.data.ledger import BucketOrder, Buckets, SampleOrder, SizedOrder, Slot

EDGES = (8, 16, 32)


@st.composite
def orders(draw: st.DrawFn) -> BucketOrder:
    """Of small datasets, in all forms."""
    lengths = draw(st.lists(st.integers(0, 50), min_size=1, max_size=120))
    batch = draw(st.integers(1, 20))
    buckets = Buckets.of(lengths, EDGES, draw(st.none() | st.integers(1, 100)))
    return BucketOrder(
        len(lengths),
        batch,
        draw(st.integers(1, batch)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 5)),
        draw(st.booleans()),
        buckets=buckets,
    )


def steps_of(order: SampleOrder, epoch: int) -> list[list[int]]:
    return [order.step_samples(epoch, step).tolist() for step in range(order.steps_per_epoch)]


@given(orders(), st.integers(0, 4))
def test_every_sample_comes_once_in_an_epoch(order: BucketOrder, epoch: int) -> None:
    steps = steps_of(order, epoch)
    assert sorted(itertools.chain(*steps)) == list(range(order.dataset_size))
    assert [len(step) for step in steps] == [order.step_size(i) for i in range(len(steps))]


@given(orders(), st.integers(0, 4))
def test_slots_share_a_step_equally(order: BucketOrder, epoch: int) -> None:
    end = 0
    for step in range(order.steps_per_epoch):
        slots = [
            order.samples(Slot(epoch, step, micro)).tolist()
            for micro in range(order.slots_per_step)
        ]
        assert list(itertools.chain(*slots)) == order.step_samples(epoch, step).tolist()
        sizes = [len(slot) for slot in slots]
        assert max(sizes) - min(sizes) <= 1
        if order.dataset_size >= order.slots_per_step:
            assert min(sizes) > 0, "a rank without a sample has no step"
        for micro in range(order.slots_per_step):
            start, stop = order.positions(Slot(epoch, step, micro))
            assert (start, stop - start) == (end, sizes[micro])
            end = stop
    assert end == order.dataset_size


@given(orders(), st.integers(0, 4))
def test_a_step_is_of_one_bucket_or_of_where_one_ends(order: BucketOrder, epoch: int) -> None:
    """Steps in the order of their lengths overlap in no more than the bucket between them."""
    numbers = order.buckets.numbers
    spans = sorted(
        (int(numbers[step].min()), int(numbers[step].max())) for step in steps_of(order, epoch)
    )
    for (_, longest), (shortest, _) in itertools.pairwise(spans):
        assert longest <= shortest
    crossing = sum(low != high for low, high in spans)
    assert crossing <= len(EDGES)


@given(orders(), st.integers(0, 3))
def test_without_tokens_steps_are_as_without_buckets_for_any_slots(
    order: BucketOrder, epoch: int
) -> None:
    if order.buckets.tokens is not None:
        return
    plain = SampleOrder(order.dataset_size, order.global_batch, 1, 1)
    one = BucketOrder(
        order.dataset_size, order.global_batch, 1, 1, order.seed, order.shuffle,
        buckets=order.buckets,
    )  # fmt: skip
    assert one.steps_per_epoch == plain.steps_per_epoch
    alike = one.steps_per_epoch
    if 0 < order.dataset_size % order.global_batch < order.slots_per_step:
        alike -= 2  # a rest that was too small for the slots got some of the step before
    ours, theirs = steps_of(order, epoch), steps_of(one, epoch)
    if alike == one.steps_per_epoch or not order.shuffle:
        assert [sorted(step) for step in theirs][: max(0, alike)] == [
            sorted(step) for step in ours
        ][: max(0, alike)]


@given(orders())
def test_a_small_rest_gets_some_of_the_step_before(order: BucketOrder) -> None:
    if order.buckets.tokens is not None:
        return
    sizes = [order.step_size(step) for step in range(order.steps_per_epoch)]
    if order.global_batch >= 2 * order.slots_per_step:
        assert max(sizes) <= order.global_batch
        assert len(sizes) == -(-order.dataset_size // order.global_batch)


@given(orders(), st.integers(0, 3))
def test_with_slots_left_empty_steps_are_sized_as_in_any_order(
    order: BucketOrder, epoch: int
) -> None:
    if order.buckets.tokens is not None:
        return
    shape = (order.dataset_size, order.global_batch, order.slots_per_step, 1, order.seed)
    plain = SampleOrder(*shape, order.shuffle)
    ours = BucketOrder(*shape, order.shuffle, buckets=order.buckets, fills_slots=False)
    known = SizedOrder(*shape, order.shuffle)
    assert ours.steps_per_epoch == plain.steps_per_epoch == known.steps_per_epoch
    for step in range(plain.steps_per_epoch):
        for micro in range(order.slots_per_step):
            slot = Slot(epoch, step, micro)
            assert ours.positions(slot) == plain.positions(slot) == known.positions(slot)
            start, stop = ours.positions(slot)
            assert len(ours.samples(slot)) == stop - start
    steps = steps_of(ours, epoch)
    assert sorted(itertools.chain(*steps)) == list(range(order.dataset_size))
    with pytest.raises(LookupError, match="lengths"):
        known.samples(Slot(0, 0, 0))


@given(orders())
def test_padded_samples_of_a_slot_are_within_the_tokens(order: BucketOrder) -> None:
    tokens = order.buckets.tokens
    if tokens is None:
        return
    for step in range(order.steps_per_epoch - 1):
        chosen = order.step_samples(0, step)
        padded = order.buckets.padded(int(order.buckets.numbers[chosen].max()))
        each = len(chosen) / order.slots_per_step
        longest = order.buckets.numbers[chosen]
        if longest.min() == longest.max():  # a rest from a shorter bucket fills up a longer one
            assert each == 1 or each * padded <= tokens


def test_epochs_differ_and_seeds_do() -> None:
    lengths = np.arange(400) % 40
    order = BucketOrder(400, 20, 4, 2, 1, buckets=Buckets.of(lengths, EDGES))
    assert steps_of(order, 0) != steps_of(order, 1)
    assert steps_of(order, 0) == steps_of(order, 0)
    other = BucketOrder(400, 20, 4, 2, 2, buckets=Buckets.of(lengths, EDGES))
    assert steps_of(order, 0) != steps_of(other, 0)
    assert order != other
    assert order == BucketOrder(400, 20, 4, 2, 1, buckets=Buckets.of(lengths, EDGES))
    longer = Buckets.of(lengths + 1, EDGES)
    assert order != BucketOrder(400, 20, 4, 2, 1, buckets=longer)


def test_ranks_of_a_step_have_about_the_same_lengths() -> None:
    source = np.random.default_rng(0)
    lengths = np.clip(np.exp(source.normal(4.6, 0.9, 20_000)).astype(int), 4, 512)
    order = BucketOrder(20_000, 256, 8, 1, buckets=Buckets.of(lengths, range(64, 513, 64)))
    worst = []
    for step in range(order.steps_per_epoch):
        sums = [lengths[order.samples(Slot(0, step, rank))].sum() for rank in range(8)]
        worst.append(max(sums) / np.mean(sums))
    assert np.mean(worst) < 1.02


@pytest.mark.parametrize(
    ("lengths", "boundaries", "tokens", "said"),
    [
        ([], [8], None, "lengths"),
        ([1.5], [8], None, "lengths"),
        ([1, -2], [8], None, "sample 1 has length -2"),
        ([1], [], None, "boundaries"),
        ([1], [8, 8], None, "ascending"),
        ([1], [0, 8], None, "positive"),
        ([1], [8], 0, "tokens"),
        ([1], [8], 3.5, "tokens: 3.5; it must be an integer"),
        ([1], [8], float("nan"), "tokens"),
        ([1], [8], "many", "tokens"),
        (np.array([1, 1 << 63], np.uint64), [8], None, "lengths: 9223372036854775808; at most"),
        ([1], np.array([1 << 63], np.uint64), None, "boundaries: 9223372036854775808; at most"),
        ([[1]], [8], None, "lengths"),
    ],
)
def test_what_cannot_be_is_named(lengths: Any, boundaries: Any, tokens: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Buckets.of(lengths, boundaries, tokens)


def test_lengths_of_another_dataset_are_refused() -> None:
    with pytest.raises(ValueError, match="of 3 samples; the dataset has 4"):
        BucketOrder(4, 2, 1, 1, buckets=Buckets.of([1, 2, 3], [8]))


def loaders(count: int, buckets: Buckets, **options: Any) -> list[Loader]:
    data = [{"index": index} for index in range(len(buckets.lengths))]
    return [
        Loader(data, 4, seed=3, index=index, count=count, buckets=buckets, **options)
        for index in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_loaders_of_a_group_end_together_with_all_samples(count: int) -> None:
    lengths = np.random.default_rng(1).integers(1, 50, 203)
    parts = [list(one) for one in loaders(count, Buckets.of(lengths, EDGES))]
    assert len({len(part) for part in parts}) == 1
    seen = [int(i) for part in parts for batch in part for i in batch["index"]]
    assert sorted(seen) == list(range(203))
    for batches in zip(*parts, strict=True):
        together = np.concatenate([lengths[batch["index"]] for batch in batches])
        assert len(together) >= count


def test_a_loader_goes_on_where_it_was() -> None:
    buckets = Buckets.of(np.random.default_rng(1).integers(1, 50, 203), EDGES)
    (first,), (second,) = loaders(1, buckets), loaders(1, buckets)
    batches = iter(first)
    for _ in range(7):
        next(batches)
    second.load_state_dict(first.state_dict())
    rest = [batch["index"].tolist() for batch in batches]
    assert [batch["index"].tolist() for batch in second] == rest


def test_a_state_of_other_lengths_is_refused() -> None:
    (first,) = loaders(1, Buckets.of(np.arange(1, 41), EDGES))
    (other,) = loaders(1, Buckets.of(np.arange(40, 0, -1), EDGES))
    with pytest.raises(ValueError, match=r"buckets: the state was saved with .* other lengths"):
        other.load_state_dict(first.state_dict())
    plain = Loader([{"index": index} for index in range(40)], 4)
    with pytest.raises(ValueError, match="this loader has none"):
        plain.load_state_dict(first.state_dict())
    with pytest.raises(ValueError, match="saved with none"):
        other.load_state_dict(plain.state_dict())


def test_the_smaller_last_step_is_left_out_on_request() -> None:
    buckets = Buckets.of(np.ones(22, int), EDGES)
    (kept,), (dropped,) = loaders(1, buckets), loaders(1, buckets, drop_last=True)
    assert (len(kept), len(dropped)) == (6, 5)
