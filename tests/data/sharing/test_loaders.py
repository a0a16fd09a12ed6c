"""Loaders that share, in one process: what each gets, ranks, resumption, and who does not share."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import data as torch_data

from penstock.base.enums import Guarantee, ShareOrder
from penstock.data.consuming.consumer import Consumer
from penstock.data.consuming.shared_stream import SharedStream
from penstock.data.protocol import BucketOptions, InputOptions, ShareOptions
from penstock.data.torch_loading import sameness, torch_loader, torch_sharing
from penstock.data.torch_loading.torch_loader import begin
from tests.data import planes


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    with planes.consumer() as made:
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: made)
        monkeypatch.setattr(torch_sharing, "_proven", {})
        yield made


@contextlib.contextmanager
def workers(consumer: Consumer, count: int = 1) -> Iterator[None]:
    """Data worker processes that are connected."""
    processes = [planes.spawn(consumer) for _ in range(count)]
    try:
        planes.eventually(lambda: len(consumer.workers) == count)
        yield
    finally:
        for process in processes:
            planes.end(process)


def share(consumer: Consumer, order: ShareOrder = ShareOrder.FREE, **options: Any) -> None:
    """As if the dispatcher had said so."""
    said = ShareOptions(group="search", order=order, window_bytes=1 << 20)
    consumer._options = InputOptions(share=said, **options)


class Numbers(torch_data.Dataset[Any]):
    def __init__(self, size: int = 203) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(3) + index, index


def loader(size: int = 203, batch: int = 16, **options: Any) -> Any:
    return torch_data.DataLoader(Numbers(size), batch, **{"shuffle": True, **options})


def plain(own: Any) -> Any:
    raise AssertionError("the loader was not intercepted")


def steps(batches: Any) -> list[list[int]]:
    return [indices.tolist() for _, indices in batches]


def whole(found: list[list[int]], size: int = 203, batch: int = 16) -> None:
    assert sorted(itertools.chain(*found)) == list(range(size))
    assert {len(one) for one in found[:-1]} == {batch}


@pytest.mark.parametrize("count", [1, 2])
def test_each_epoch_has_every_sample_and_another_order(consumer: Consumer, count: int) -> None:
    share(consumer)
    own = loader(num_workers=2)
    with workers(consumer, count):
        batches = begin(own, plain)
        assert isinstance(batches.stream, SharedStream)
        assert len(batches) == len(own) == 13
        first, second = steps(batches), steps(begin(own, plain))
    whole(first)
    whole(second)
    assert first != second


def test_the_last_batch_may_be_left_out(consumer: Consumer) -> None:
    share(consumer)
    with workers(consumer):
        batches = begin(loader(drop_last=True), plain)
        found = steps(batches)
    assert len(found) == len(batches) == 12
    assert {len(one) for one in found} == {16}


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_divide_the_tiles(consumer: Consumer, drop_last: bool) -> None:
    share(consumer)
    found = []
    with workers(consumer):
        for rank in range(3):
            sampler: Any = torch_data.DistributedSampler(Numbers(), 3, rank, seed=5)
            own = loader(shuffle=None, sampler=sampler, drop_last=drop_last)
            found.append(steps(begin(own, plain)))
            assert len(found[-1]) == len(own)
    seen = list(itertools.chain(*itertools.chain(*found)))
    if drop_last:
        assert len(seen) == len(set(seen)) == 3 * 16 * 4
    else:  # as with PyTorch some are repeated so that each rank has as many
        assert set(seen) == set(range(203))
        assert len(seen) == 204


class Heard(dict[str, tuple[int, int]]):
    """The others are at this place, whatever the order."""

    def __init__(self, place: tuple[int, int]) -> None:
        super().__init__()
        self._place = place

    def get(self, key: str, default: Any = None) -> Any:
        return self._place


def test_ranks_have_one_epoch_together_whatever_each_has_heard(consumer: Consumer) -> None:
    share(consumer, ShareOrder.COMMON)
    found: list[list[int]] = []
    with workers(consumer):
        for rank, place in enumerate([(3, 192), (4, 0)]):
            consumer.fronts = Heard(place)
            sampler: Any = torch_data.DistributedSampler(Numbers(), 2, rank)
            found += steps(begin(loader(shuffle=None, sampler=sampler), plain))
    assert sorted(itertools.chain(*found)) == list(range(203))


def test_an_epoch_is_gone_on_with(consumer: Consumer) -> None:
    share(consumer)

    def make() -> Any:
        return torch_loader.DataLoader(Numbers(), 16, shuffle=True)

    with workers(consumer):
        first = make()
        batches = iter(first)
        before = [next(batches)[1].tolist() for _ in range(5)]
        state = copy.deepcopy(first.state_dict())
        second = make()
        second.load_state_dict(state)
        whole(before + steps(second))
        whole(steps(second))


class Secretive(Numbers):
    """It has other samples where a variable is set: nothing that a digest could see."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(3) + index + 1000 * ("SECRET" in os.environ), index


@pytest.mark.parametrize("order", list(ShareOrder))
def test_each_data_worker_has_to_make_the_same(
    consumer: Consumer,
    order: ShareOrder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    share(consumer, order)
    own = torch_data.DataLoader(Secretive(), 16, shuffle=True)
    with workers(consumer):
        assert max(made.max() for made, _ in begin(own, plain)) < 1000
        monkeypatch.setenv("SECRET", "1")
        other = planes.spawn(consumer)
        monkeypatch.delenv("SECRET")
        arrived = consumer.counts.arrived

        def found_out() -> bool:
            batches = list(begin(own, plain))
            whole([of.tolist() for _, of in batches])
            assert max(made.max() for made, _ in batches) < 1000
            return "makes other samples than this program of the same dataset" in caplog.text

        try:
            planes.eventually(found_out, 60)
        finally:
            planes.end(other)
        assert consumer.counts.arrived > arrived, "the first is asked"


def nobody_knows(*arguments: Any) -> Any:
    raise sameness.NoProofError("no data worker has opened it in time")


@pytest.mark.parametrize("order", list(ShareOrder))
@pytest.mark.parametrize("differs", [False, True])
def test_ranks_of_which_one_does_not_share_lose_nothing_together(
    consumer: Consumer,
    order: ShareOrder,
    differs: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    share(consumer, order)
    found: list[list[int]] = []
    with workers(consumer):
        for rank in range(2):
            if rank and differs:
                monkeypatch.setenv("SECRET", "1")
            elif rank:
                monkeypatch.setattr(torch_sharing, "compare", nobody_knows)
            monkeypatch.setattr(torch_sharing, "_proven", {})
            sampler: Any = torch_data.DistributedSampler(Secretive(), 2, rank)
            own = torch_data.DataLoader(Secretive(), 16, sampler=sampler)
            batches = list(begin(own, plain))
            own_samples = bool(rank and differs)
            assert all(bool((made >= 1000).all()) == own_samples for made, _ in batches)
            found += [of.tolist() for _, of in batches]
    assert "does not share with group search" in caplog.text
    assert set(itertools.chain(*found)) == set(range(203))
    assert sum(map(len, found)) - 203 <= (order is ShareOrder.FREE)


def test_without_data_workers_nothing_is_shared_and_that_is_said(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    share(consumer)
    whole(steps(begin(loader(), plain)))
    assert "does not share with group search: the group has no data worker" in caplog.text


class AtHome(Numbers):
    """It can be opened by its own process alone."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        if os.getpid() != state["home"]:
            raise OSError("a license for one process")
        self.__dict__.update(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "home": os.getpid()}


def test_what_no_data_worker_can_open_is_not_waited_for(
    consumer: Consumer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sameness, "PROOF_SECONDS", 3600.0)
    share(consumer)
    own = torch_data.DataLoader(AtHome(), 16, shuffle=True)
    with workers(consumer):
        whole(steps(begin(own, plain)))
    assert "no data worker can open it" in caplog.text


def with_a_lock(samples: list[Any]) -> Any:
    """One batch of the epoch has what no other process can have."""
    rows, indices = torch_data.default_collate(samples)
    return rows, indices, threading.Lock() if 77 in indices else 0


@pytest.mark.parametrize("pins", [False, True])
def test_what_cannot_be_sent_is_made_by_the_program(
    consumer: Consumer, pins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    share(consumer)
    failed = []

    def once(batch: Any) -> Any:
        if pins and not failed:
            failed.append(batch)
            raise MemoryError("no more can be pinned")
        return batch

    monkeypatch.setattr(torch_loader, "finisher", lambda own: once)
    with workers(consumer):
        found = begin(loader(collate_fn=with_a_lock), plain)
        if pins:
            with pytest.raises(MemoryError, match="no more can be pinned"):
                list(found)
            return
        batches = list(found)
    whole([indices.tolist() for _, indices, _ in batches])
    assert [type(lock) for _, _, lock in batches].count(type(threading.Lock())) == 1


def test_a_data_worker_that_is_lost_costs_no_sample(consumer: Consumer) -> None:
    share(consumer)
    process = planes.spawn(consumer)
    planes.eventually(lambda: consumer.workers)
    batches = begin(loader(), plain)
    found = [next(batches)[1].tolist() for _ in range(3)]
    planes.end(process)
    whole(found + steps(batches))


def test_an_epoch_does_not_wait_for_a_data_worker_in_the_place_of_one_that_died(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    share(consumer)
    processes = [planes.spawn(consumer) for _ in range(2)]
    planes.eventually(lambda: len(consumer.workers) == 2)
    own = loader()
    whole(steps(begin(own, plain)))
    planes.end(processes[0])
    planes.eventually(lambda: len(consumer.workers) == 1)
    makers = consumer.pool.makers
    monkeypatch.setattr(makers, "workers_of_job", 2)
    monkeypatch.setattr(makers, "_count_expected", lambda queue: 1)  # for ever
    whole(steps(begin(own, plain)))
    planes.end(processes[1])


def test_others_are_asked_where_a_data_worker_stands_still(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    share(consumer)
    with workers(consumer):
        still = planes.spawn(consumer)
        planes.eventually(lambda: len(consumer.workers) == 2)
        own = loader()
        batches = begin(own, plain)
        found = [next(batches)[1].tolist()]
        still.send_signal(signal.SIGSTOP)
        whole(found + steps(batches))
        assert "stands still: others are asked" in caplog.text
        still.send_signal(signal.SIGCONT)
        whole(steps(begin(own, plain)))
        planes.end(still)


def test_a_data_worker_that_has_yet_to_open_the_pipeline_is_not_waited_for(
    consumer: Consumer,
) -> None:
    share(consumer)
    own = loader()
    with workers(consumer):
        whole(steps(begin(own, plain)))
    planes.eventually(lambda: not consumer.workers)
    still = planes.spawn(consumer)
    planes.eventually(lambda: consumer.workers)
    still.send_signal(signal.SIGSTOP)
    made = consumer.counts.made_here
    whole(steps(begin(own, plain)))
    assert consumer.workers, "it was waited for until it was lost"
    assert consumer.counts.made_here - made == 13
    still.send_signal(signal.SIGCONT)
    planes.end(still)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shuffle": False}, ""),
        (
            {"shuffle": None, "sampler": torch_data.WeightedRandomSampler([1.0] * 203, 50)},
            "its WeightedRandomSampler decides which samples come",
        ),
        ({"batch": 150}, "203 samples are less than 2 batches"),
    ],
)
def test_who_does_not_share_is_told_why(
    consumer: Consumer, caplog: pytest.LogCaptureFixture, options: Any, said: str
) -> None:
    share(consumer)
    list(begin(loader(**options), plain))
    if said:
        assert f"does not share with group search: {said}" in caplog.text
    else:
        assert "does not share" not in caplog.text


def test_a_common_order_does_not_depend_on_the_program(consumer: Consumer) -> None:
    share(consumer, ShareOrder.COMMON)
    with workers(consumer):
        torch.manual_seed(1)
        first = [(made, of.tolist()) for made, of in begin(loader(), plain)]
        torch.manual_seed(2)
        own = loader(batch=8, num_workers=1)
        second = [(made, of.tolist()) for made, of in begin(own, plain)]
        again = steps(begin(own, plain))
    whole([of for _, of in first])
    assert list(itertools.chain(*(of for _, of in first))) == list(
        itertools.chain(*(of for _, of in second))
    )
    one, other = (torch.cat([made for made, _ in found]) for found in (first, second))
    assert torch.equal(one, other), "each sample bit by bit"
    assert again != [of for _, of in second]


def test_a_common_order_by_length(consumer: Consumer) -> None:
    buckets = BucketOptions(boundaries=(50, 100, 150), lengths="lengths")
    share(consumer, ShareOrder.COMMON, buckets=buckets)
    own = loader()
    own.dataset.lengths = list(range(1, 204))
    with workers(consumer):
        found = steps(begin(own, plain))
    assert sorted(itertools.chain(*found)) == list(range(203))
    assert sum(max(one) - min(one) > 60 for one in found) <= 3


def test_a_common_order_is_gone_on_with(consumer: Consumer) -> None:
    share(consumer, ShareOrder.COMMON)

    def make() -> Any:
        return torch_loader.DataLoader(Numbers(), 16, shuffle=True)

    with workers(consumer):
        first = make()
        batches = iter(first)
        for _ in range(5):
            next(batches)
        state = copy.deepcopy(first.state_dict())
        second = make()
        second.load_state_dict(state)
        assert steps(second) == steps(batches)


def test_what_has_left_the_window_is_counted_where_that_may_be(consumer: Consumer) -> None:
    share(consumer, ShareOrder.COMMON, guarantee=Guarantee.AT_MOST_ONCE)
    consumer._options = consumer._options.model_copy(
        update={"share": ShareOptions(group="search", order=ShareOrder.COMMON, window_bytes=500)}
    )
    with workers(consumer):
        # Batches of eight leave the window before the larger one wants their samples.
        late = torch_loader.DataLoader(Numbers(4000), 16, shuffle=True)
        batches = iter(late)
        next(batches)
        assert len(steps(begin(loader(4000, batch=8), plain))) <= 500
        rest = steps(batches)
        assert late.lost > 0
        assert len(rest) + 1 + late.lost == 250
