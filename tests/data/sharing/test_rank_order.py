"""Ranks of one program in a share group: one order together, whoever makes the batches of each.

Each rank is a loader of this process, with a consumer that stands where that rank's would.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import data as torch_data

from penstock.base.enums import ShareOrder
from penstock.data.consuming.consumer import Consumer
from penstock.data.protocol import InputOptions, ShareOptions
from penstock.data.torch_loading import torch_loader, torch_sharing
from penstock.data.torch_loading.torch_loader import begin
from tests.data import planes


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    with planes.consumer() as made:
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: made)
        monkeypatch.setattr(torch_sharing, "_proven", {})
        yield made


@pytest.fixture
def worker(consumer: Consumer) -> Iterator[None]:
    """A data worker process that is connected."""
    process = planes.spawn(consumer)
    planes.eventually(lambda: consumer.workers)
    yield
    planes.end(process)


def share(consumer: Consumer, order: ShareOrder | None) -> None:
    """As if the dispatcher had said so; None: there is no group."""
    said = None if order is None else ShareOptions(group="g", order=order, window_bytes=1 << 20)
    consumer._options = InputOptions(share=said)


class Numbers(torch_data.Dataset[Any]):
    """A dataset that may hold what is another on each rank."""

    def __init__(self, held: Any = None, size: int = 203) -> None:
        self.held, self.size = held, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(3) + index, index


class Counting(Numbers):
    """It changes itself, so that its program has to make its samples."""

    asked = 0

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.asked += 1
        return super().__getitem__(index)


def plain(own: Any) -> Any:
    raise AssertionError("the loader was not intercepted")


def of_rank(rank: int, dataset: Any = None, kind: Any = torch_data.DataLoader, **more: Any) -> Any:
    """The loader of one rank of two, with batches of 16."""
    dataset = dataset or Numbers()
    sampler: Any = torch_data.DistributedSampler(dataset, 2, rank)
    return kind(dataset, 16, sampler=sampler, **more)


def steps(batches: Any) -> list[list[int]]:
    return [indices.tolist() for _, indices in batches]


def together(found: list[list[int]], order: ShareOrder) -> None:
    """All samples once, but for the one that a `DistributedSampler` repeats in an odd number."""
    seen = list(itertools.chain(*found))
    assert set(seen) == set(range(203))
    assert len(seen) - 203 <= (order is ShareOrder.FREE)


@pytest.mark.parametrize("order", list(ShareOrder))
@pytest.mark.parametrize("processes", [0, 2])
def test_a_rank_whose_data_workers_come_later_has_the_groups_order_before(
    consumer: Consumer, order: ShareOrder, processes: int, caplog: pytest.LogCaptureFixture
) -> None:
    share(consumer, order)
    first, second = of_rank(0, num_workers=processes), of_rank(1)
    found = steps(begin(first, plain))
    assert "does not share with group g: the group has no data worker" in caplog.text
    process = planes.spawn(consumer)
    planes.eventually(lambda: consumer.workers)
    later = steps(begin(second, plain))
    assert consumer.counts.arrived > 0, "data workers made them"
    assert len(found) == len(later) == len(first)
    together(found + later, order)
    own, other = steps(begin(first, plain)), steps(begin(second, plain))
    planes.end(process)
    together(own + other, order)
    assert own != found


@pytest.mark.parametrize("order", list(ShareOrder))
@pytest.mark.parametrize("differs", ["content", "a lock"])
def test_ranks_whose_datasets_are_not_the_same_have_one_order(
    consumer: Consumer, worker: None, order: ShareOrder, differs: str
) -> None:
    share(consumer, order)
    held = ["rank 0", "rank 1"] if differs == "content" else [None, threading.Lock()]
    found = [steps(begin(of_rank(rank, Numbers(one)), plain)) for rank, one in enumerate(held)]
    together(found[0] + found[1], order)


@pytest.mark.parametrize("order", list(ShareOrder))
def test_a_rank_whose_dataset_is_seen_to_change_keeps_the_order(
    consumer: Consumer, order: ShareOrder, caplog: pytest.LogCaptureFixture
) -> None:
    share(consumer, order)
    one, other = of_rank(0, Counting()), of_rank(1)
    list(begin(one, plain))
    one.__dict__["_penstock_epochs"].stream.queue.keep_here()
    list(begin(other, plain))
    together(steps(begin(one, plain)) + steps(begin(other, plain)), order)


MADE_IN = [None, *ShareOrder]


@pytest.mark.parametrize("made_in", MADE_IN)
@pytest.mark.parametrize("goes_on_in", MADE_IN)
@pytest.mark.parametrize("rank", [None, 0])
def test_an_epoch_is_ended_in_the_order_in_which_it_was_begun(
    consumer: Consumer, made_in: ShareOrder | None, goes_on_in: ShareOrder | None, rank: int | None
) -> None:
    def make() -> Any:
        if rank is None:
            return torch_loader.DataLoader(Numbers(), 16, shuffle=True)
        return of_rank(rank, kind=torch_loader.DataLoader)

    share(consumer, made_in)
    first = make()
    batches = iter(first)
    before = [next(batches)[1].tolist() for _ in range(3)]
    state = copy.deepcopy(first.state_dict())
    rest = steps(batches)
    share(consumer, goes_on_in)
    second = make()
    second.load_state_dict(state)
    went_on = iter(second)
    after = [next(went_on)[1].tolist()]
    third = make()  # and once more
    third.load_state_dict(copy.deepcopy(second.state_dict()))
    after += steps(third)
    assert len(after) == len(rest)
    assert sorted(itertools.chain(*after)) == sorted(itertools.chain(*rest))
    assert third.state_dict()["start"] is third.state_dict()["tiles"] is None
    if rank is None:
        assert sorted(itertools.chain(*before, *after)) == list(range(203))
    assert len(steps(third)) == len(first)


@pytest.mark.parametrize("served_first", [True, False])
def test_an_epoch_that_was_shared_is_ended_without_a_group_and_the_other_way_round(
    consumer: Consumer, worker: None, served_first: bool
) -> None:
    def make() -> Any:
        return torch_loader.DataLoader(Numbers(), 16, shuffle=True)

    groups = [ShareOrder.FREE, None]
    share(consumer, groups[not served_first])
    first = make()
    batches = iter(first)
    before = [next(batches)[1].tolist() for _ in range(5)]
    state = copy.deepcopy(first.state_dict())
    share(consumer, groups[served_first])
    second = make()
    second.load_state_dict(state)
    assert sorted(itertools.chain(*before, *steps(second))) == list(range(203))
    assert sorted(itertools.chain(*steps(second))) == list(range(203))


def test_a_state_of_another_rank_is_refused(consumer: Consumer) -> None:
    share(consumer, ShareOrder.FREE)
    first = of_rank(0, kind=torch_loader.DataLoader)
    next(iter(first))
    state = first.state_dict()
    with pytest.raises(ValueError, match="ranks: the state is of rank 0 of 2, this is rank 1 of 2"):
        of_rank(1, kind=torch_loader.DataLoader).load_state_dict(state)
    of_rank(0, kind=torch_loader.DataLoader).load_state_dict(state)


def test_a_state_in_a_groups_order_is_no_evaluations(consumer: Consumer) -> None:
    share(consumer, ShareOrder.FREE)
    first = of_rank(0, kind=torch_loader.DataLoader)
    next(iter(first))
    state = {**first.state_dict(), "ranks": [0, 1], "generators": []}
    evaluation = torch_loader.DataLoader(Numbers(), 16)
    evaluation.load_state_dict(state)
    with pytest.raises(ValueError, match="order: the state's epoch is in the order of a share gro"):
        iter(evaluation)


def test_a_dataset_that_has_grown_behind_its_sampler_is_not_shared(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    share(consumer, ShareOrder.COMMON)
    own = of_rank(0)
    own.dataset.size = 300
    with pytest.raises((AssertionError, ValueError)):
        list(begin(own, plain))
    said = "does not share with group g: its DistributedSampler was made when the dataset had not"
    assert said in caplog.text
