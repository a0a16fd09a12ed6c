"""``input.buckets`` in programs that know nothing of it: their DataLoaders' steps by length."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import data as torch_data

from penstock.base.enums import Guarantee
from penstock.data.consuming.consumer import Consumer
from penstock.data.ledger import Buckets
from penstock.data.length_window import like_lengths
from penstock.data.protocol import BucketOptions, InputOptions
from penstock.data.torch_loading import torch_loader
from penstock.data.torch_loading.torch_buckets import BucketBatches
from penstock.data.torch_loading.torch_loader import begin
from tests.data import planes

EDGES = (8, 16, 32)
LENGTHS = np.random.default_rng(1).integers(1, 50, 203)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    with planes.consumer() as made:
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: made)
        yield made


def asks(consumer: Consumer, lengths: str = "lengths", **options: Any) -> None:
    """As if the dispatcher had said so."""
    asked = BucketOptions(boundaries=EDGES, lengths=lengths, **options)
    consumer._options = InputOptions(buckets=asked)


class Texts(torch_data.Dataset[Any]):
    def __init__(self) -> None:
        self.lengths = LENGTHS

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.ones(int(self.lengths[index])), index


def padded(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    texts, indices = zip(*samples, strict=True)
    return torch.nn.utils.rnn.pad_sequence(list(texts)), torch.tensor(indices)


def plain(loader: Any) -> Any:
    raise AssertionError("the loader was not intercepted")


def loader(**options: Any) -> Any:
    given = {"batch_size": 8, "shuffle": True, "collate_fn": padded, **options}
    return torch_data.DataLoader(Texts(), **given)


def ranked(rank: int, count: int, **options: Any) -> Any:
    data = Texts()
    sampler: Any = torch_data.DistributedSampler(data, count, rank, seed=5)
    return torch_data.DataLoader(data, 8, sampler=sampler, collate_fn=padded, **options)


def steps(batches: Any) -> list[list[int]]:
    return [indices.tolist() for _, indices in batches]


def crossings(found: list[list[int]]) -> int:
    numbers = np.searchsorted(EDGES, LENGTHS, side="left")
    return sum(len(set(numbers[step].tolist())) > 1 for step in found)


@pytest.mark.parametrize("lengths", ["lengths", "Measure"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_shuffled_loaders_steps_are_of_like_length(
    consumer: Consumer, lengths: str, workers: int
) -> None:
    asks(consumer, lengths)
    own = loader(num_workers=workers)
    torch.manual_seed(3)
    first, second = steps(begin(own, plain)), steps(begin(own, plain))
    for found in (first, second):
        assert sorted(itertools.chain(*found)) == list(range(203))
        assert len(found) == len(own)
        assert crossings(found) <= len(EDGES)
    assert first != second
    torch.manual_seed(3)
    assert steps(begin(loader(), plain)) == first, "the same with any makers"


def test_ranks_of_a_program_divide_one_order(consumer: Consumer) -> None:
    asks(consumer)
    parts = [ranked(rank, 3) for rank in range(3)]
    for epoch in range(2):
        for part in parts:
            part.sampler.set_epoch(epoch)
        found = [steps(begin(part, plain)) for part in parts]
        assert {len(one) for one in found} == {len(parts[0])}
        together = [list(itertools.chain(*step)) for step in zip(*found, strict=True)]
        assert sorted(itertools.chain(*together)) == list(range(203)), "none is repeated"
        assert crossings(together) <= len(EDGES)
    again = steps(begin(parts[0], plain))
    assert again == found[0], "the epoch is what the program sets"


def test_evaluations_stay_in_order_and_nothing_is_said(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    asks(consumer)
    found = steps(begin(loader(shuffle=False), plain))
    assert list(itertools.chain(*found)) == list(range(203))
    assert "like length" not in caplog.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"shuffle": None, "sampler": torch_data.WeightedRandomSampler([1.0] * 203, 50)},
            "its WeightedRandomSampler decides which samples come",
        ),
        (
            {"shuffle": None, "sampler": torch_data.RandomSampler(range(203), replacement=True)},
            "draws with replacement",
        ),
        ({"batch_size": None, "collate_fn": None}, "it has no batches"),
    ],
)
def test_samplers_with_a_purpose_of_their_own_stay_and_it_is_said(
    consumer: Consumer, caplog: pytest.LogCaptureFixture, options: Any, said: str
) -> None:
    asks(consumer)
    list(begin(loader(**options), plain))
    assert f"has no steps of like length: {said}" in caplog.text.replace("its RandomSampler ", "")


class Iterated(torch_data.IterableDataset[Any]):
    """The texts as a stream: by themselves, or as batches of like length."""

    def __init__(self, *, batched: bool = False) -> None:
        self.batched = batched

    def __iter__(self) -> Iterator[Any]:
        data = Texts()
        samples = (data[index] for index in range(len(data)))
        return like_lengths(samples, 8, window=10, seed=7) if self.batched else samples


@pytest.mark.parametrize("lengths", ["lengths", "Measure"])
def test_a_stream_stays_as_it_is_and_it_is_said_what_to_do(
    consumer: Consumer, caplog: pytest.LogCaptureFixture, lengths: str
) -> None:
    asks(consumer, lengths)
    own = torch_data.DataLoader(Iterated(), 8, collate_fn=padded)
    for _ in range(2):
        assert list(itertools.chain(*steps(begin(own, plain)))) == list(range(203))
    said = [line for line in caplog.messages if "no steps of like length" in line]
    assert len(said) == 1
    assert "its dataset is iterated" in said[0]
    assert "penstock.data.like_lengths" in said[0]


def test_a_stream_that_batches_itself_by_length_is_served_as_it_is_alone(
    consumer: Consumer,
) -> None:
    own = torch_data.DataLoader(Iterated(batched=True), None, collate_fn=padded)
    found = steps(begin(own, plain))
    assert found == steps(torch_data.DataLoader.__iter__(own))
    assert sorted(itertools.chain(*found)) == list(range(203))
    assert len(found) == -(-203 // 8)


@pytest.mark.parametrize("lengths", ["missing", "/nowhere/lengths.npy"])
def test_lengths_that_are_not_there_leave_the_programs_order(
    consumer: Consumer, caplog: pytest.LogCaptureFixture, lengths: str
) -> None:
    asks(consumer, lengths)
    torch.manual_seed(3)
    found = steps(begin(loader(), plain))
    torch.manual_seed(3)
    assert found == steps(torch_data.DataLoader.__iter__(loader()))
    assert lengths.strip("/").split("/")[0] in caplog.text


class Broken(Texts):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == 77:
            raise ValueError("no such text")
        return super().__getitem__(index)


def test_a_sample_that_raises_while_lengths_are_measured_is_named(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    asks(consumer, "Measure")
    own = torch_data.DataLoader(Broken(), 8, shuffle=True, collate_fn=padded)
    with pytest.raises(ValueError, match="no such text"):
        list(begin(own, plain))
    assert "has no steps of like length: ValueError: no such text" in caplog.text


def test_an_epoch_is_gone_on_with(consumer: Consumer) -> None:
    asks(consumer)

    def make() -> Any:
        return torch_loader.DataLoader(Texts(), 8, shuffle=True, collate_fn=padded)

    torch.manual_seed(3)
    first = make()
    batches = iter(first)
    for _ in range(5):
        next(batches)
    state = copy.deepcopy(first.state_dict())
    torch.manual_seed(9)
    second = make()
    second.load_state_dict(state)
    assert steps(second) == steps(batches)


def test_unsharded_ranks_have_everything_each(consumer: Consumer) -> None:
    asked = BucketOptions(boundaries=EDGES, lengths="lengths")
    consumer._options = InputOptions(guarantee=Guarantee.UNSHARDED, buckets=asked)
    found = steps(begin(ranked(1, 3), plain))
    assert sorted(itertools.chain(*found)) == list(range(203))
    assert crossings(found) <= len(EDGES)


def test_tokens_make_batches_of_short_samples_larger(consumer: Consumer) -> None:
    asks(consumer, tokens=64)
    batches = list(begin(loader(), plain))
    found = [indices.tolist() for _, indices in batches]
    assert sorted(itertools.chain(*found)) == list(range(203))
    sizes = {len(step) for step in found}
    assert max(sizes) >= 8 > min(sizes)


class Ranks:
    """What a DistributedSampler says of itself."""

    def __new__(cls, size: int, count: int, rank: int, *, drop: bool) -> Any:
        # arg-type: a range is no Dataset, but has a length.
        return torch_data.DistributedSampler(range(size), count, rank, drop_last=drop)  # type: ignore[arg-type]


@given(
    st.integers(1, 200),
    st.integers(2, 9),
    st.integers(1, 8),
    st.booleans(),
    st.booleans(),
)
def test_each_rank_has_as_many_batches_as_before(
    size: int, batch: int, count: int, drop: bool, samplers_drop: bool
) -> None:
    if size < count:
        return
    buckets = Buckets.of([1 + index % 40 for index in range(size)], EDGES)
    found = []
    for rank in range(count):
        sampler = Ranks(size, count, rank, drop=samplers_drop)
        given_batches = torch_data.BatchSampler(sampler, batch, drop)
        ours = BucketBatches(given_batches, size, buckets)
        found.append(list(ours))
        assert len(found[-1]) == len(ours)
        assert all(found[-1]), "a rank without a sample has no step"
        if drop:
            assert {len(one) for one in found[-1]} <= {batch}
            assert len(ours) in (len(given_batches), len(given_batches) - 1)
        else:
            assert len(ours) == len(given_batches)
            assert all(len(one) <= batch for one in found[-1])
    seen = [index for part in found for one in part for index in one]
    assert len(seen) == len(set(seen))
    if not drop and not samplers_drop:
        assert len(seen) == size
