"""What the job says of its input reaches its loaders: ``input.guarantee`` and ``input.skipBad``."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import data as torch_data

from penstock.base.enums import Guarantee
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer
from penstock.data.protocol import BucketOptions, InputOptions, ShareOptions
from penstock.data.queue.credits import PREFETCH
from penstock.data.torch_loading import torch_loader
from penstock.data.torch_loading.assumed_order import AssumedOrder, AssumedOrderError
from penstock.data.torch_loading.torch_loader import begin
from tests.data import planes
from tests.data.planes import Noise, end, eventually, spawn


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    with planes.consumer() as made:
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: made)
        yield made


def says(consumer: Consumer, **options: Any) -> None:
    """As if the dispatcher had said so."""
    consumer._options = InputOptions(**options)


def plain(loader: Any) -> Any:
    raise AssertionError("the loader was not intercepted")


class Pictures(torch_data.Dataset[Any]):
    """Of which some cannot be read."""

    def __init__(self, broken: tuple[int, ...] = (), size: int = 40) -> None:
        self.broken, self.size = broken, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index in self.broken:
            raise ValueError(f"picture {index} cannot be read")
        return torch.rand(2), index


class Together(Pictures):
    """A dataset that reads a whole batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def seen(batches: Any) -> list[int]:
    return [int(one) for _, indices in batches for one in indices]


@pytest.mark.parametrize("kind", [Pictures, Together])
def test_an_intercepted_loader_leaves_out_what_raises_where_the_job_says_so(
    consumer: Consumer, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    loader = torch_data.DataLoader(kind(broken=(5, 6, 7, 4, 21)), batch_size=4)
    with pytest.raises(ValueError, match="picture 4 cannot be read"):
        list(begin(loader, plain))
    says(consumer, skip_bad=True)
    assert seen(begin(loader, plain)) == [
        one for one in range(40) if one not in (4, 5, 6, 7, 21)
    ], "a batch of which nothing is left is none"
    [*_, bad] = loader._penstock_epochs.quarantine
    assert (bad.index, bad.batch.step) == (21, 5)
    assert "in __getitem__" in bad.trace
    assert "ValueError: picture 21 cannot be read" in bad.trace
    [line] = [text for text in caplog.messages if "sample 21 is left out" in text]
    assert "in __getitem__" in line
    assert consumer.counts.left_out == 5
    assert "sample 21 of loader-" in consumer.counts.newest_left_out[-1]


def test_a_loader_of_single_samples_leaves_them_out_too(consumer: Consumer) -> None:
    says(consumer, skip_bad=True)
    loader = torch_data.DataLoader(Pictures(broken=(3,), size=6), batch_size=None)
    assert [index for _, index in begin(loader, plain)] == [0, 1, 2, 4, 5]


def test_what_the_program_says_itself_counts_for_more(consumer: Consumer) -> None:
    says(consumer, skip_bad=True, guarantee=Guarantee.AT_MOST_ONCE)
    loader = torch_loader.DataLoader(Pictures(broken=(3,)), batch_size=4, skip_bad=False)
    with pytest.raises(ValueError, match="picture 3"):
        list(loader)


def test_at_most_once_gives_up_what_a_data_worker_died_with(consumer: Consumer) -> None:
    says(consumer, guarantee=Guarantee.AT_MOST_ONCE)
    batches = begin(torch_data.DataLoader(SlowPictures(size=200), batch_size=4), plain)
    process, got = spawn(consumer), []
    try:
        eventually(lambda: consumer.workers)
        got = [next(batches)]  # it is sent the pipeline now
        eventually(lambda: consumer.counts.arrived >= 3)
        process.kill()
        got += batches
    finally:
        end(process)
    lost = consumer.counts.lost
    assert 0 < lost <= PREFETCH
    assert len(got) == 50 - lost
    assert len(set(seen(got))) == len(seen(got))


class SlowPictures(Pictures):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.005)
        return super().__getitem__(index)


def of_rank(kind: str, rank: int, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Two epochs of a rank of two."""
    monkeypatch.setenv("RANK", str(rank))
    dataset, generator = Pictures(), torch.Generator().manual_seed(1)
    options: dict[str, Any] = {"shuffle": True, "generator": generator}
    if kind == "distributed":
        sampler: Any = torch_data.DistributedSampler(dataset, num_replicas=2, rank=rank)
        options = {"sampler": sampler}
    loader: Any = torch_data.DataLoader(dataset, batch_size=4, **options)
    found = []
    for epoch in range(2):
        if kind == "distributed":
            sampler.set_epoch(epoch)
        batches = begin(loader, plain)
        assert len(batches) == 10
        found.append(seen(batches))
    return found


@pytest.mark.parametrize("kind", ["distributed", "random"])
def test_unsharded_ranks_see_everything_in_orders_of_their_own(
    consumer: Consumer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(consumer, guarantee=Guarantee.UNSHARDED)
    orders = of_rank(kind, 0, monkeypatch) + of_rank(kind, 1, monkeypatch)
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert of_rank(kind, 1, monkeypatch) == orders[2:]


def test_an_unsharded_rank_goes_on_in_its_own_order_in_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")

    def loader() -> torch_loader.DataLoader:
        found = torch_loader.DataLoader(
            Pictures(), batch_size=4, shuffle=True, guarantee=Guarantee.UNSHARDED
        )
        torch.seed()  # as in a process of its own, whose program seeds nothing
        return found

    first = loader()
    batches = iter(first)
    for _ in range(3):
        next(batches)
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    assert seen(second) == seen(batches)


def test_a_loader_without_a_framework_asks_the_job_too(consumer: Consumer) -> None:
    says(consumer, guarantee=Guarantee.UNSHARDED)
    whole = list(Loader(Noise(), 4, index=1, count=2, consumer=consumer))
    assert sorted(int(one) for batch in whole for one in batch["index"]) == list(range(60))
    half = Loader(Noise(), 4, index=1, count=2, consumer=consumer, guarantee=Guarantee.EXACTLY_ONCE)
    assert sum(len(batch["index"]) for batch in half) < 60


def test_a_dispatcher_that_does_not_answer_leaves_it_at_the_strictest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr("penstock.data.consuming.consumer.OPTIONS_SECONDS", 0.2)
    with planes.consumer(dispatcher="127.0.0.1:9") as alone:
        assert alone.options() == InputOptions()
        assert "has not said in 0 s" in caplog.text
        began = time.monotonic()
        assert alone.options().guarantee is Guarantee.EXACTLY_ONCE
        assert time.monotonic() - began < 0.1, "that is waited for once"


def late(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[int]:
    """An epoch of one of two ranks that begins before the job has said what it is."""
    monkeypatch.setattr("penstock.data.consuming.consumer.OPTIONS_SECONDS", 0.05)
    sampler = torch_data.DistributedSampler(Pictures(), 2, 1)
    with planes.consumer(dispatcher="127.0.0.1:9") as deaf:
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: deaf)
        loader = torch_data.DataLoader(Pictures(), 4, sampler=sampler)
        for index, _ in enumerate(begin(loader, plain)):
            yield index
            if index == 1:
                says(deaf, **options)
                deaf.has_heard = True


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"share": ShareOptions(group="g")}, "input.share of group g"),
        ({"buckets": BucketOptions(boundaries=(10,))}, "input.buckets"),
        ({"guarantee": Guarantee.UNSHARDED}, "input.guarantee"),
    ],
)
def test_a_rank_that_hears_of_another_order_too_late_does_not_go_on(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], told: str
) -> None:
    epoch = late(monkeypatch, **options)
    assert [next(epoch), next(epoch)] == [0, 1]
    with pytest.raises(AssumedOrderError, match=f"{told}.*last checkpoint"):
        next(epoch)


def test_a_rank_that_hears_late_that_its_order_is_right_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(late(monkeypatch, skip_bad=True)) == [0, 1, 2, 3, 4]


def test_a_loader_that_stays_as_it_is_needs_no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer has threads and sockets; processes that a loader spawns are to have none."""
    asked: list[None] = []
    monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: asked.append(None))
    loader = torch_data.DataLoader(Pictures(), 4, num_workers=1, in_order=False)
    assert begin(loader, lambda _: "as it is") == "as it is"
    assert not asked


def test_an_order_is_assumed_by_one_of_several_that_gave_up_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.data.consuming.consumer.OPTIONS_SECONDS", 0.05)
    loader, whole = torch_data.DataLoader(Pictures(), 4), torch_data.DataLoader(Pictures(), None)
    with planes.consumer(dispatcher="127.0.0.1:9") as deaf:
        deaf.options()
        assert AssumedOrder.of(loader, deaf, heard=False) is None
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert AssumedOrder.of(loader, deaf, heard=False) is not None
        assert AssumedOrder.of(whole, deaf, heard=False) is not None
        deaf.has_heard = True  # between its begin and this: what it went by is not known
        assert AssumedOrder.of(loader, deaf, heard=False) is not None
        assert AssumedOrder.of(loader, deaf, heard=True) is None
