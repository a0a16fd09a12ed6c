"""PyTorch's DataLoader with data workers: the same program, the same batches."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import data as torch_data

from penstock.data.consuming.consumer import Consumer
from penstock.data.torch_loading import torch_loader
from penstock.data.torch_loading.torch_loader import DataLoader, why_local
from tests.data import planes
from tests.data.planes import end, eventually, same, spawn, thread_worker


class Images(torch_data.Dataset[Any]):
    """Samples that draw, as augmentation does, or not."""

    def __init__(self, draws: bool = True) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.rand(3, 8, 8) if self.draws else torch.zeros(3, 8, 8)
        return noise.permute(1, 2, 0).contiguous().permute(2, 0, 1) + index, index


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    with planes.consumer() as made:
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: made)
        yield made


def make(kind: type[torch_data.DataLoader[Any]], draws: bool = True, **options: Any) -> Any:
    order = torch.Generator().manual_seed(3)
    return kind(Images(draws), batch_size=4, shuffle=True, generator=order, **options)


def two_epochs(loader: Any) -> list[Any]:
    return [*loader, *loader]


def test_the_order_is_that_of_pytorch_and_so_are_batches_without_random_numbers() -> None:
    assert same(
        two_epochs(make(DataLoader, draws=False)),
        two_epochs(make(torch_data.DataLoader, draws=False)),
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_without_a_generator_the_order_is_that_of_pytorch_too(seed: int) -> None:
    orders = []
    for kind in (DataLoader, torch_data.DataLoader):
        torch.manual_seed(seed)
        loader: Any = kind(Images(draws=False), batch_size=4, shuffle=True)
        orders.append([two_epochs(loader), torch.rand(3)])
    assert same(orders[0][0], orders[1][0])
    assert torch.equal(orders[0][1], orders[1][1])


Kind = type[torch_data.DataLoader[Any]]


def epochs_left_early(kind: Kind, workers: int, **options: Any) -> list[Any]:
    order = torch.Generator().manual_seed(3)
    if options:
        options = {"sampler": torch_data.RandomSampler(Images(), generator=order, **options)}
    else:
        options = {"shuffle": True, "generator": order}
    loader: Any = kind(Images(draws=False), batch_size=4, num_workers=workers, **options)
    seen = []
    for stop in (2, 9, 12, 50, 3, 1, 50):
        batches = iter(loader)
        seen += [batch[1].tolist() for batch in itertools.islice(batches, stop)]
        seen.append([order.initial_seed(), *order.get_state().tolist()])
    return seen


def two_that_share_a_generator(kind: Kind, workers: int) -> list[Any]:
    order = torch.Generator().manual_seed(3)
    training: Any = kind(Images(draws=False), 4, shuffle=True, generator=order, num_workers=workers)
    validation: Any = kind(Images(draws=False), 10, generator=order, num_workers=workers)
    seen = []
    for _ in range(2):
        for step, batch in enumerate(training):
            seen.append(batch[1].tolist())
            if step % 5 == 0:
                seen += [one[1].tolist() for one in validation]
    for left, right in zip(training, training, strict=True):
        seen += [left[1].tolist(), right[1].tolist()]
    return seen


def begun_long_before(kind: Kind, workers: int) -> list[Any]:
    torch.manual_seed(4)
    loaders: list[Any] = [
        kind(Images(draws=False), 4, shuffle=True, num_workers=workers) for _ in range(2)
    ]
    batches = [iter(one) for one in loaders]
    seen: list[Any] = [torch.rand(2).tolist()]
    for _ in range(5):
        seen += [next(one)[1].tolist() for one in batches]
    return seen


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "program",
    [
        epochs_left_early,
        functools.partial(epochs_left_early, num_samples=110),
        functools.partial(epochs_left_early, num_samples=110, replacement=True),
        two_that_share_a_generator,
        begun_long_before,
    ],
)
def test_generators_are_drawn_from_when_pytorch_draws_from_them(
    program: Callable[[Kind, int], list[Any]], workers: int
) -> None:
    assert program(DataLoader, workers) == program(torch_data.DataLoader, workers)


def test_data_workers_change_nothing(consumer: Consumer) -> None:
    torch.manual_seed(5)
    wanted = two_epochs(make(DataLoader))
    drawn = torch.rand(4)
    assert consumer.counts.arrived == 0
    processes = [spawn(consumer), spawn(consumer, tcp=True)]
    try:
        eventually(lambda: len(consumer.workers) == 2)
        torch.manual_seed(5)
        loader = make(DataLoader)
        got = two_epochs(loader)
        while not consumer.counts.arrived:  # they were still importing PyTorch
            list(loader)
        torch.manual_seed(5)
        again = two_epochs(make(DataLoader))
    finally:
        for process in processes:
            end(process)
    assert torch.equal(torch.rand(4), drawn)
    assert same(got, wanted)
    assert same(again, wanted)
    assert [one[0].stride() for one in again] == [one[0].stride() for one in wanted]


@pytest.mark.parametrize("generator", [True, False])
def test_the_state_comes_back_in_the_middle_of_an_epoch(generator: bool) -> None:
    def fresh() -> DataLoader:
        order = torch.Generator().manual_seed(3) if generator else None
        return DataLoader(Images(), batch_size=4, shuffle=True, generator=order)

    torch.manual_seed(9)
    first = fresh()
    wanted = list(first)
    batches = iter(first)
    wanted += [next(batches) for _ in range(5)]
    state, drawn = first.state_dict(), torch.get_rng_state()
    rest = [*batches, *first]
    torch.manual_seed(1)  # another process
    second = fresh()
    torch.set_rng_state(drawn)  # from the program's own checkpoint
    second.load_state_dict(state)
    assert same([*second, *second], rest)


def test_a_state_between_epochs_goes_on_with_the_next() -> None:
    first = make(DataLoader)
    list(first)
    state = first.state_dict()
    wanted = list(first)
    second = make(DataLoader)
    second.load_state_dict(state)
    assert same(list(second), wanted)


class Stream(torch_data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


class Pipe(torch_data.IterDataPipe[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


class Hard(torch_data.Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))

    def __len__(self) -> int:
        return 5


def prepare(number: int) -> None:
    """A worker_init_fn."""


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        (torch_data.DataLoader(Stream()), None),
        (torch_data.DataLoader(Pipe()), "its dataset is a DataPipe"),
        (torch_data.DataLoader(Images(), worker_init_fn=prepare, num_workers=1), None),
        (torch_data.DataLoader(Images(), sampler=Hard()), "its sampler Hard may depend"),
        (torch_data.DataLoader(Images(), sampler=Hard(), num_workers=1), None),
        (torch_data.DataLoader(Images(), num_workers=1, in_order=False), "in_order=False"),
        (torch_data.DataLoader([lambda: 1], collate_fn=len), None),
    ],
)
def test_what_cannot_move_says_why(loader: Any, why: str | None) -> None:
    reason = torch_loader.why_local(loader, trust_sampler=False)
    assert why in reason if why and reason else reason == why


def test_what_no_data_worker_can_be_sent_runs_as_it_always_did(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    loader = DataLoader([threading.Lock()] * 9, batch_size=1, collate_fn=len)
    with thread_worker(consumer):
        eventually(lambda: consumer.workers)
        assert list(loader) == [1] * 9
        assert list(loader) == [1] * 9
    [line] = [text for text in caplog.messages if "is not served" in text]
    assert "the dataset or collate function cannot be pickled" in line


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("ours", [True, False])
def test_a_loader_that_was_iterated_can_be_copied(copied: Any, ours: bool) -> None:
    kind = DataLoader if ours else torch_data.DataLoader
    loader: Any = kind(Images(draws=False), batch_size=4, shuffle=True)

    def begin(of: Any) -> Any:
        return iter(of) if ours else torch_loader.begin(of, torch_data.DataLoader.__iter__)

    batches = begin(loader)
    next(batches)
    other = copied(loader)
    assert len(list(begin(other))) == len(loader)
    assert len(list(batches)) == len(loader) - 1


def test_a_batch_size_of_none_gives_samples() -> None:
    got = list(DataLoader(Images(draws=False), batch_size=None))
    assert [index for _, index in got] == list(range(50))


def test_lengths_are_those_of_pytorch() -> None:
    loader = make(DataLoader)
    assert len(loader) == len(iter(loader)) == 13


class Ragged(torch_data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3 if index == 5 else 4)


def test_a_ragged_batch_is_the_error_of_pytorch_and_says_where() -> None:
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size") as caught:
        list(DataLoader(Ragged(), batch_size=4, skip_bad=True))
    assert "samples [4, 5, 6, 7] of loader-" in caught.value.__notes__[0]


def test_an_iterable_dataset_with_persistent_workers_stays_as_pytorch_has_it() -> None:
    class Numbers(torch_data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(10))

    plain = torch_data.DataLoader(Numbers(), num_workers=1, persistent_workers=True)
    assert "persistent_workers=True" in (why_local(plain, trust_sampler=False) or "")
    assert why_local(plain, trust_sampler=True) is None
    plain = torch_data.DataLoader(Numbers(), num_workers=1)
    assert why_local(plain, trust_sampler=False) is None
