"""Datasets that are iterated, with workers of both kinds: as with PyTorch, each sample once."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data as torch_data

from penstock.base.enums import Guarantee
from penstock.data.consuming.consumer import Consumer
from penstock.data.queue.assignment import MISSING_SECONDS
from penstock.data.torch_loading import torch_loader
from penstock.data.torch_loading.torch_loader import DataLoader
from tests.data import planes
from tests.data.planes import end, local_workers, same, spawn
from tests.patience import patient

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Numbers(torch_data.IterableDataset[Any]):
    """Its samples divided over the workers, of which the odd ones have fewer."""

    def __init__(
        self, size: int = 101, draws: bool = False, seconds: float = 0.0, tells: bool = True
    ) -> None:
        """``tells``: who makes a sample; then it is another one elsewhere."""
        self.size, self.draws, self.seconds, self.tells = size, draws, seconds, tells

    def __iter__(self) -> Iterator[Any]:
        info = torch_data.get_worker_info()
        number, count = (info.id, info.num_workers) if info is not None else (0, 1)
        for value in range(number, self.size if number % 2 == 0 else self.size // 2, count):
            time.sleep(self.seconds)
            noise = 0.0
            if self.draws:
                noise = random.random() + np.random.rand() + torch.rand(()).item()
            yield torch.tensor([value + noise], dtype=torch.float64), os.getpid() * self.tells


class Unrepeatable(Numbers):
    """Another order whenever it is begun."""

    def __iter__(self) -> Iterator[Any]:
        shuffled = random.Random(os.urandom(8))
        samples = list(super().__iter__())
        shuffled.shuffle(samples)
        for sample in samples:
            time.sleep(0.005)
            yield sample


@contextmanager
def served() -> Iterator[tuple[Consumer, list[Any]]]:
    """A consumer and two data workers that have imported what these pipelines need."""
    with planes.consumer() as consumer:
        processes = [spawn(consumer), spawn(consumer, tcp=True)]
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(torch_loader, "consumer_of_process", lambda: consumer)
                pids, seen = pids_of(processes), set[int]()
                deadline = time.monotonic() + patient(40)
                while not pids <= seen:
                    assert time.monotonic() < deadline, f"{pids - seen} made no batch"
                    seen |= makers(make(DataLoader, Numbers(size=8, seconds=0.1), num_workers=2))
            yield consumer, processes
        finally:
            for process in processes:
                end(process)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Consumer, list[Any]]]:
    with served() as there:
        yield there


@pytest.fixture
def workers_of(
    shared: tuple[Consumer, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> tuple[Consumer, list[Any]]:
    """Two data workers that other tests have too, for those that do nothing to them."""
    consumer, processes = shared
    monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: consumer)
    consumer.counts.arrived = 0
    return consumer, processes


@pytest.fixture
def victims(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Consumer, list[Any]]]:
    """Two data workers that may be killed."""
    with served() as there:
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: there[0])
        there[0].counts.arrived = 0
        yield there


def make(kind: type[torch_data.DataLoader[Any]], dataset: Any, **options: Any) -> Any:
    options = {"batch_size": 4, **options}
    return kind(dataset, generator=torch.Generator().manual_seed(3), **options)


def contents(batches: Any) -> list[Any]:
    return [batch[0] for batch in batches]


def makers(batches: Any) -> set[int]:
    return {int(pid) for batch in batches for pid in torch.as_tensor(batch[1]).reshape(-1)}


@pytest.mark.parametrize("batch_size", [4, None])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_every_epoch_is_as_with_pytorch_also_where_it_draws(
    workers: int, batch_size: int | None, persistent: bool
) -> None:
    options = {
        "num_workers": workers,
        "batch_size": batch_size,
        "persistent_workers": persistent,
        "drop_last": batch_size is not None and workers == 2,
    }
    ours = make(DataLoader, Numbers(draws=True), **options)
    theirs = make(torch_data.DataLoader, Numbers(draws=True), **options)
    for _ in range(3):
        assert same(contents(ours), contents(theirs))


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_with_data_workers_it_is_the_same(
    workers_of: tuple[Consumer, list[Any]], workers: int
) -> None:
    _consumer, two_workers = workers_of
    draws = workers > 0  # without workers PyTorch draws from the program's own generators
    ours = make(DataLoader, Numbers(draws=draws), num_workers=workers)
    theirs = make(torch_data.DataLoader, Numbers(draws=draws), num_workers=workers)
    for _ in range(2):
        batches = list(ours)
        assert same(contents(batches), contents(theirs))
        assert {one.pid for one in two_workers} & makers(batches)
        assert len(makers(batches)) <= max(1, workers)
        assert os.getpid() not in makers(batches)


def test_without_workers_what_draws_does_not_depend_on_who_makes_it(
    request: pytest.FixtureRequest,
) -> None:
    before = torch.get_rng_state()
    alone = contents(make(DataLoader, Numbers(draws=True)))
    assert torch.equal(torch.get_rng_state(), before)
    consumer, _ = request.getfixturevalue("workers_of")
    assert same(contents(make(DataLoader, Numbers(draws=True))), alone)
    assert consumer.counts.arrived == len(alone)


@pytest.mark.parametrize("victim", ["data worker", "local worker"])
def test_a_maker_that_is_killed_loses_and_repeats_nothing(
    victims: tuple[Consumer, list[Any]], victim: str
) -> None:
    _consumer, two_workers = victims
    dataset = Numbers(size=160, draws=True, seconds=0.01, tells=False)
    wanted = contents(make(torch_data.DataLoader, dataset, num_workers=4))
    got = []
    for step, batch in enumerate(make(DataLoader, dataset, num_workers=4)):
        got.append(batch[0])
        if step == 10:
            local = [one.pid for one in local_workers() if one.pid not in pids_of(two_workers)]
            pid = two_workers[0].pid if victim == "data worker" else local[0]
            os.kill(pid, signal.SIGKILL)
    assert same(got, wanted)


def pids_of(processes: list[Any]) -> set[int]:
    return {one.pid for one in processes}


def test_a_data_worker_that_leaves_hands_its_stream_over(
    victims: tuple[Consumer, list[Any]],
) -> None:
    _consumer, two_workers = victims
    dataset = Numbers(size=120, draws=True, seconds=0.01, tells=False)
    wanted = contents(make(torch_data.DataLoader, dataset, num_workers=2))
    got = []
    for step, batch in enumerate(make(DataLoader, dataset, num_workers=2)):
        got.append(batch[0])
        if step == 5:
            for process in two_workers:
                process.terminate()
    assert same(got, wanted)
    assert [process.wait(20) for process in two_workers] == [0, 0]


def test_what_cannot_be_repeated_is_given_once_at_most_and_the_log_says_so(
    victims: tuple[Consumer, list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    consumer, two_workers = victims
    got: list[float] = []
    for step, batch in enumerate(make(DataLoader, Unrepeatable(size=200), num_workers=2)):
        got += batch[0].reshape(-1).tolist()
        if step == 4:
            assert makers([batch]) <= pids_of(two_workers)
            os.kill(makers([batch]).pop(), signal.SIGKILL)
    assert len(got) == len(set(got)) < 150
    assert consumer.counts.lost > 0
    [line] = [text for text in caplog.messages if "what is left of it is lost" in text]
    assert "are not what they were before" in line


def test_at_most_once_goes_on_without_what_was_lost(victims: tuple[Consumer, list[Any]]) -> None:
    consumer, two_workers = victims
    loader = DataLoader(
        Numbers(size=160, seconds=0.01),
        batch_size=4,
        num_workers=2,
        guarantee=Guarantee.AT_MOST_ONCE,
    )
    got: list[float] = []
    for step, batch in enumerate(loader):
        got += batch[0].reshape(-1).tolist()
        if step == 4:
            assert makers([batch]) <= pids_of(two_workers)
            os.kill(makers([batch]).pop(), signal.SIGKILL)
    assert len(got) == len(set(got)) == 120 - 4 * consumer.counts.lost
    assert 1 <= consumer.counts.lost <= 4


class Failing(Numbers):
    def __iter__(self) -> Iterator[Any]:
        for number, sample in enumerate(super().__iter__()):
            if number == 6:
                raise LookupError("no such shard")
            yield sample


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("data_workers", [False, True])
def test_what_the_dataset_raises_is_the_programs_error(
    request: pytest.FixtureRequest, workers: int, data_workers: bool
) -> None:
    if data_workers:
        request.getfixturevalue("workers_of")
    batches = iter(make(DataLoader, Failing(tells=False), num_workers=workers))
    for _ in range(max(1, workers)):
        next(batches)
    with pytest.raises(LookupError, match="no such shard"):
        next(batches)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("steps", [0, 7, 19])
def test_a_state_goes_on_where_it_was(workers: int, steps: int) -> None:
    first = make(DataLoader, Numbers(draws=True), num_workers=workers)
    batches = iter(first)
    for _ in range(steps):
        next(batches)
    state = first.state_dict()
    wanted = contents(batches)
    second = make(DataLoader, Numbers(draws=True), num_workers=workers)
    second.load_state_dict(state)
    assert same(contents(second), wanted)
    assert same(contents(second), contents(first))


def test_ranks_are_told_where_the_stream_is_hosted(
    workers_of: tuple[Consumer, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _consumer, two_workers = workers_of
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "7")
    batches = list(make(DataLoader, Ranked(), num_workers=2))
    assert {tuple(row) for batch in batches for row in batch[0].tolist()} == {(3, 7)}
    assert makers(batches) & pids_of(two_workers)


class Ranked(torch_data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for _ in range(20):
            place = [int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])]
            yield torch.tensor(place), os.getpid()


class Locked(Numbers):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("dataset", "options", "why"),
    [
        (Locked, {"num_workers": 2}, "cannot be pickled"),
        (Numbers, {"num_workers": 2, "persistent_workers": True}, "persistent_workers=True"),
    ],
)
def test_what_no_data_worker_can_host_stays_local_and_one_line_says_why(
    workers_of: tuple[Consumer, list[Any]],
    caplog: pytest.LogCaptureFixture,
    dataset: Callable[[], Any],
    options: dict[str, Any],
    why: str,
) -> None:
    consumer, _two_workers = workers_of
    loader = make(DataLoader, dataset(), **options)
    began = time.monotonic()
    for _ in range(2):
        assert same(contents(loader), contents(make(torch_data.DataLoader, dataset(), **options)))
    assert time.monotonic() - began < 30
    assert consumer.counts.arrived == 0
    [line] = [text for text in caplog.messages if "not served by data workers" in text]
    assert why in line


def test_data_workers_that_do_not_come_are_waited_for_but_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planes.consumer() as consumer:
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: consumer)
        consumer.pool.makers.workers_of_job = 2
        loader, took = make(DataLoader, Numbers()), []
        for _ in range(3):
            began = time.monotonic()
            assert makers(loader) == {os.getpid()}
            took.append(time.monotonic() - began)
        assert took[0] > MISSING_SECONDS - 0.1
        assert max(took[1:]) < MISSING_SECONDS - 0.1


def shards(folder: Path) -> list[str]:
    """Six tar files of ten samples each."""
    import webdataset

    for number in range(6):
        with webdataset.TarWriter(str(folder / f"{number}.tar")) as writer:
            for sample in range(10):
                value = 10 * number + sample
                writer.write({"__key__": f"{value:04d}", "npy": np.full(4, value), "cls": value})
    return sorted(str(path) for path in folder.glob("*.tar"))


def test_webdataset(workers_of: tuple[Consumer, list[Any]], tmp_path: Path) -> None:
    consumer, _two_workers = workers_of
    import webdataset

    paths = shards(tmp_path)

    def dataset() -> Any:
        read = webdataset.WebDataset(
            paths, shardshuffle=False, nodesplitter=webdataset.split_by_node
        )
        return read.shuffle(8, seed=5).decode().to_tuple("npy", "cls").batched(5)

    options = {"batch_size": None, "num_workers": 3}
    wanted = contents(make(torch_data.DataLoader, dataset(), **options))
    got = list(make(DataLoader, dataset(), **options))
    assert sorted(value for _, values in got for value in values) == list(range(60))
    assert consumer.counts.arrived > 0
    assert len(wanted) == len(got)


def test_a_streaming_dataset_of_hugging_face(
    workers_of: tuple[Consumer, list[Any]], tmp_path: Path
) -> None:
    consumer, _two_workers = workers_of
    import datasets

    for number in range(4):
        table = datasets.Dataset.from_dict({"value": list(range(25 * number, 25 * number + 25))})
        table.to_parquet(str(tmp_path / f"{number}.parquet"))
    files = sorted(str(path) for path in tmp_path.glob("*.parquet"))
    stream = datasets.load_dataset(
        "parquet", data_files=files, split="train", streaming=True, cache_dir=str(tmp_path / "c")
    )
    stream = stream.shuffle(seed=7, buffer_size=10)
    ours, theirs = (
        kind(stream, batch_size=4, num_workers=2) for kind in (DataLoader, torch_data.DataLoader)
    )
    for epoch in range(2):
        stream.set_epoch(epoch)
        got = [batch["value"] for batch in ours]
        assert same(got, [batch["value"] for batch in theirs])
        assert sorted(torch.cat(got).tolist()) == list(range(100))
    assert consumer.counts.arrived > 0
