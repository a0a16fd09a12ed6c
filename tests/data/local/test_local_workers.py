"""The processes that a program's loader asks for: as PyTorch's, beside data workers."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import logging
import os
import signal
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils import data as torch_data

from penstock.data.consuming import batch_stream
from penstock.data.consuming.consumer import Consumer
from penstock.data.memory import Memory, MemoryMeter
from penstock.data.queue.worker_pool import WorkerPool
from penstock.data.torch_loading import torch_loader
from penstock.data.torch_loading.torch_loader import DataLoader
from tests import fork_server
from tests.data import planes
from tests.data.planes import end, eventually, local_workers, same, spawn
from tests.patience import patient

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Images(torch_data.Dataset[Any]):
    """Samples that draw, or not, and tell who made them."""

    def __init__(self, size: int = 50, draws: bool = True, seconds: float = 0.0) -> None:
        self.size, self.draws, self.seconds = size, draws, seconds

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        time.sleep(self.seconds)
        noise = torch.rand(3, 8, 8) + np.random.rand() if self.draws else torch.zeros(3, 8, 8)
        return noise + index, index, os.getpid()


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    with planes.consumer() as made:
        monkeypatch.setattr(torch_loader, "consumer_of_process", lambda: made)
        yield made


def make(kind: type[torch_data.DataLoader[Any]], **options: Any) -> Any:
    dataset = options.pop("dataset", None) or Images(draws=options.pop("draws", True))
    order = torch.Generator().manual_seed(3)
    return kind(dataset, batch_size=4, shuffle=True, generator=order, **options)


def contents(batches: Any) -> list[Any]:
    return [batch[:2] for batch in batches]


def makers(batches: Any) -> set[int]:
    return {int(pid) for batch in batches for pid in batch[2]}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_what_draws_nothing_is_as_with_pytorch_epoch_by_epoch(
    workers: int, persistent: bool
) -> None:
    options = {"num_workers": workers, "persistent_workers": persistent, "draws": False}
    ours, theirs = make(DataLoader, **options), make(torch_data.DataLoader, **options)
    for _ in range(3):
        assert same(contents(ours), contents(theirs))


@pytest.mark.parametrize("persistent", [False, True])
def test_what_draws_is_the_same_for_any_number_of_workers_of_either_kind(
    consumer: Consumer, persistent: bool
) -> None:
    wanted = make(DataLoader)
    runs = [[contents(wanted) for _ in range(3)]]
    options = [{}] if not persistent else []
    options += [{"num_workers": count, "persistent_workers": persistent} for count in (1, 2, 5)]
    for chosen in options:
        loader = make(DataLoader, **chosen)
        runs.append([contents(loader) for _ in range(3)])
    processes = [spawn(consumer), spawn(consumer, tcp=True)]
    try:
        eventually(lambda: len(consumer.workers) == 2)
        before = consumer.counts.arrived
        slow = Images(draws=True, seconds=0.005)
        while consumer.counts.arrived == before:
            loader = make(DataLoader, dataset=slow, num_workers=2, persistent_workers=persistent)
            runs.append([contents(loader) for _ in range(3)])
    finally:
        for process in processes:
            end(process)
    first = runs[1 if persistent else 0]  # with persistent workers epoch 2 has another order
    for run in runs[1:]:
        assert same(run[0], runs[0][0])
        assert all(same(left, right) for left, right in zip(run, first, strict=True))


def test_they_are_as_many_as_asked_for_and_nobody_else_makes_a_batch() -> None:
    batches = list(make(DataLoader, dataset=Images(200, seconds=0.001), num_workers=3))
    assert len(makers(batches)) == 3
    assert os.getpid() not in makers(batches)


def test_they_end_with_the_epoch_or_with_its_iterator() -> None:
    loader = make(DataLoader, num_workers=2)
    list(loader)
    eventually(lambda: not local_workers())
    batches = iter(loader)
    next(batches)
    assert len(local_workers()) == 2
    del batches
    eventually(lambda: not local_workers())


def test_their_end_is_not_said_in_the_log_of_the_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)  # as programs set it for themselves
    handler = logging.FileHandler(tmp_path / "log")
    logging.getLogger().addHandler(handler)
    try:
        list(DataLoader(Images(), batch_size=4, num_workers=2))
        eventually(lambda: not local_workers())
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    assert (tmp_path / "log").read_text() == ""


def test_persistent_ones_live_until_the_loader_is_gone() -> None:
    loader = make(DataLoader, num_workers=2, persistent_workers=True)
    first, second = list(loader), list(loader)
    assert makers(first) | makers(second) <= {one.pid for one in local_workers()}
    assert len(local_workers()) == 2
    del loader
    eventually(lambda: not local_workers())


def test_persistent_ones_live_as_long_as_an_iterator_whose_loader_is_gone() -> None:
    options = {"dataset": Images(200, draws=False, seconds=0.001), "num_workers": 2}
    batches = iter(make(DataLoader, persistent_workers=True, **options))
    gc.collect()
    assert len(list(batches)) == 50
    del batches
    gc.collect()
    eventually(lambda: not local_workers())


@pytest.mark.parametrize("steps", [0, 5])
def test_a_state_goes_on_with_persistent_workers(steps: int) -> None:
    options = {"num_workers": 2, "persistent_workers": True}
    first = make(DataLoader, **options)
    list(first)
    batches = iter(first) if steps else None
    for _ in range(steps):
        next(batches)
    state = first.state_dict()
    wanted = contents(batches if batches is not None else first)
    second = make(DataLoader, **options)
    second.load_state_dict(state)
    assert same(contents(second), wanted)


class Faulty(Images):
    def __getitem__(self, index: int) -> Any:
        if index == 17:
            raise LookupError(f"no picture {index}")
        return super().__getitem__(index)


def test_what_the_program_raises_is_raised_once_as_with_pytorch() -> None:
    errors = []
    for kind in (DataLoader, torch_data.DataLoader):
        got: list[Any] = []
        with pytest.raises(LookupError, match="no picture 17") as caught:
            got.extend(kind(Faulty(), batch_size=4, num_workers=2))
        assert len(got) == 4
        errors.append(str(caught.value).splitlines()[0][:40])
    assert errors[0] == errors[1]
    assert errors[0].startswith("Caught LookupError in DataLoader worker ")


class Missing(Images):
    def __getitem__(self, index: int) -> Any:
        return {}["label"]


def test_a_missing_key_is_shown_with_its_traceback_line_by_line_as_with_pytorch() -> None:
    errors = []
    for kind in (DataLoader, torch_data.DataLoader):
        with pytest.raises(KeyError) as caught:
            list(kind(Missing(), batch_size=4, num_workers=1))
        errors.append(str(caught.value).splitlines())
    for lines in errors:
        assert lines[0] == "Caught KeyError in DataLoader worker process 0."
        assert "KeyError: 'label'" in lines


class Deadly(Images):
    """A sample that takes its process along, as a decoder's segmentation fault does."""

    def __getitem__(self, index: int) -> Any:
        if index == 21:
            faulthandler.disable()  # pytest's, which would fill the log
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().__getitem__(index)


def test_a_sample_that_kills_every_worker_is_named_and_does_not_hang(
    caplog: pytest.LogCaptureFixture,
) -> None:
    got: list[Any] = []
    with pytest.raises(RuntimeError, match=r"step 5, samples \[20, 21, 22, 23\]"):
        got.extend(DataLoader(Deadly(draws=False), batch_size=4, num_workers=2))
    assert [int(one) for batch in got for one in batch[1]] == list(range(20))
    assert "was killed by signal 11" in caplog.text
    gc.collect()  # the error's traceback had the iterator
    eventually(lambda: not local_workers())


def test_one_that_is_killed_is_replaced_and_no_sample_lost_or_repeated() -> None:
    loader = DataLoader(Images(200, seconds=0.002), batch_size=4, num_workers=2)
    wanted = contents(DataLoader(Images(200), batch_size=4))
    killed, got = 0, []
    for step, batch in enumerate(loader):
        got.append(batch)
        if step in (5, 20, 35):
            local_workers()[0].kill()
            killed += 1
    assert killed == 3
    assert [batch[1].tolist() for batch in got] == [batch[1].tolist() for batch in wanted]


def test_worker_init_fn_and_worker_info_are_as_with_pytorch() -> None:
    runs = []
    for kind in (DataLoader, torch_data.DataLoader):
        loader = kind(Told(), batch_size=None, num_workers=2, worker_init_fn=tell)
        runs.append({tuple(sample) for sample in loader})
    assert runs[0] == runs[1] == {(2, "told", True)}


class Told(torch_data.Dataset[Any]):
    told = ""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        info = torch_data.get_worker_info()
        assert info is not None
        return info.num_workers, self.told, info.dataset is self


def tell(number: int) -> None:
    """A worker_init_fn, which changes the dataset of its process."""
    info = torch_data.get_worker_info()
    assert info is not None
    assert info.id == number
    info.dataset.told = "told"


def refuse(number: int) -> None:
    raise OSError(f"no room for worker {number}")


def test_a_worker_init_fn_that_fails_is_the_programs_error() -> None:
    with pytest.raises(OSError, match="no room for worker"):
        list(DataLoader(Images(), num_workers=2, worker_init_fn=refuse))


class Custom:
    def __init__(self, samples: list[Any]) -> None:
        self.picture = torch.stack([sample[0] for sample in samples])
        self.names = {f"number {sample[1]}" for sample in samples}


def test_batches_of_the_programs_own_classes_are_carried() -> None:
    loader = DataLoader(Images(8, draws=False), batch_size=4, num_workers=1, collate_fn=Custom)
    batches = list(loader)
    assert [type(batch) for batch in batches] == [Custom, Custom]
    assert batches[1].names == {f"number {index}" for index in range(4, 8)}
    assert torch.equal(batches[1].picture[:, 0, 0, 0], torch.arange(4.0, 8.0))


class Unreadable:
    """A batch that can be made, but not be received."""

    def __init__(self, samples: list[Any]) -> None:
        self.data = torch.stack([sample[0] for sample in samples])

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise LookupError("no such version")


@pytest.mark.timeout(50)
def test_a_batch_that_cannot_be_received_is_the_programs_error() -> None:
    with pytest.raises(LookupError, match="no such version"):
        next(iter(make(DataLoader, collate_fn=Unreadable, num_workers=2)))


def fail_for_want_of_memory(batch: Any) -> Any:
    raise MemoryError("no page-locked memory")


@pytest.mark.parametrize("place", ["here", "local", "data worker"])
def test_a_device_that_is_full_is_the_programs_error(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(torch_loader, "finisher", lambda loader: fail_for_want_of_memory)
    process = spawn(consumer) if place == "data worker" else None
    try:
        if process is not None:
            eventually(lambda: consumer.workers)
        with pytest.raises(MemoryError, match="no page-locked memory"):
            next(iter(make(DataLoader, num_workers=2 if place == "local" else 0)))
        assert len(consumer.workers) == (process is not None)
    finally:
        if process is not None:
            end(process)


class Locked(Images):
    """Cannot be pickled; PyTorch's workers, being forks, do not mind."""

    def __init__(self) -> None:
        super().__init__(draws=False)
        self.lock = threading.Lock()


def test_a_dataset_that_cannot_be_pickled_is_no_problem_where_workers_are_forked() -> None:
    assert len(makers(DataLoader(Locked(), batch_size=4, num_workers=2))) == 2


def test_where_they_are_spawned_the_error_is_pythons_own() -> None:
    loader = DataLoader(Locked(), num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(TypeError, match="cannot pickle"):
        list(loader)


@pytest.mark.slow
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_other_ways_to_start_a_process(context: str) -> None:
    loader = make(DataLoader, num_workers=1, multiprocessing_context=context)
    assert same(contents(loader), contents(make(DataLoader)))


def test_data_workers_and_local_ones_share_the_work(consumer: Consumer) -> None:
    wanted = contents(DataLoader(Images(800), batch_size=4))
    process = spawn(consumer)
    try:
        eventually(lambda: consumer.workers)
        loader = DataLoader(Images(800, seconds=0.002), batch_size=4, num_workers=1)
        before = consumer.counts.arrived
        while consumer.counts.arrived - before <= 20:  # it had yet to open the pipeline
            consumer.counts.made_nearby = 0
            got = list(loader)
        assert consumer.counts.made_nearby > 20
        assert consumer.counts.made_here == len(wanted)  # by the loader that has no workers
    finally:
        end(process)
    assert [batch[1].tolist() for batch in got] == [batch[1].tolist() for batch in wanted]


CHANGED = "its dataset was changed after they began"


class Levels(Images):
    """A dataset that its program changes between epochs."""

    level = 0

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return self.level


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
def test_data_workers_have_the_dataset_as_local_ones_have_it(
    consumer: Consumer, caplog: pytest.LogCaptureFixture, early: bool, persistent: bool
) -> None:
    dataset = Levels(400)
    loader: Any = DataLoader(
        torch_data.Subset(dataset, range(400)), 4, num_workers=1, persistent_workers=persistent
    )
    process = spawn(consumer) if early else None
    try:
        if process is not None:
            eventually(lambda: consumer.workers)
        for level in itertools.count():
            dataset.level = level
            seen = {one for batch in loader for one in batch.tolist()}
            assert seen == {0 if persistent else level}
            if level == 1 and process is None:
                process = spawn(consumer)
                eventually(lambda: consumer.workers)
            if level > 1 and (consumer.counts.arrived or CHANGED in caplog.text):
                break
    finally:
        if process is not None:
            end(process)
    helps = early or not persistent
    assert bool(consumer.counts.arrived) == helps
    assert (CHANGED in caplog.text) == (not helps)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_may_be_iterated_within_itself(workers: int) -> None:
    loader = DataLoader(Images(12, draws=False), batch_size=4, num_workers=workers)
    met = [(int(left[1][0]), int(right[1][0])) for left in loader for right in loader]
    assert met == [(left, right) for left in (0, 4, 8) for right in (0, 4, 8)]


def test_a_time_out_of_the_programs_is_kept() -> None:
    loader = DataLoader(Images(4, seconds=30.0), batch_size=4, num_workers=1, timeout=0.5)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.5 seconds"):
        next(iter(loader))


@pytest.mark.parametrize(("free", "makers"), [(1 << 40, 6), (110 << 20, 2)])
def test_in_a_small_pod_fewer_make_large_batches_and_one_line_says_so(
    free: int, makers: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def measure() -> Memory:
        return Memory(free - pool.makers.shared.held_bytes, 4 << 30)

    pool = WorkerPool(MemoryMeter(measure, clock=itertools.count().__next__))
    monkeypatch.setattr(batch_stream, "pool_of_process", lambda: pool)
    loader = DataLoader(Large(), batch_size=4, num_workers=6)
    for _ in range(2):
        batches = iter(loader)
        next(batches)  # how large they are is known, of the second epoch from its beginning
        assert pool.limit == ("" if makers == 6 else "memory")
        assert batches.stream.queue.bound.makers == makers
        rest = [int(index) for _, indices in batches for index in indices]
        assert rest == list(range(4, 80))
    lines = [text for text in caplog.messages if "make them at once" in text]
    assert len(lines) == (0 if makers == 6 else 2), "one an epoch"
    assert all("batches of 8 MiB: 2 of 6 processes" in line for line in lines)


class Large(Images):
    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(2 << 20, dtype=torch.uint8), index


PROGRAM = textwrap.dedent(
    """
    import os, sys, time
    from torch.utils.data import Dataset
    from penstock.data.torch_loading.torch_loader import DataLoader
    class Slow(Dataset):
        def __len__(self):
            return 100
        def __getitem__(self, index):
            time.sleep(float(sys.argv[1]))
            return index
    for step, batch in enumerate(DataLoader(Slow(), num_workers=2)):
        print(step, flush=True)
        time.sleep(0.05)
    """
)


ENDING = textwrap.dedent(
    """
    import os, sys
    import torch
    from torch.utils.data import Dataset
    from penstock.data.torch_loading.torch_loader import DataLoader
    class Large(Dataset):
        held = torch.zeros(1 << 20)
        def __len__(self):
            return 1000
        def __getitem__(self, index):
            return self.held + index
    for _ in range(5):  # each a program that has begun, to the end of its interpreter
        if (program := os.fork()) == 0:
            loader = DataLoader(Large(), batch_size=4, num_workers=2)
            batches = iter(loader)
            print(float(next(batches)[1, 0]), flush=True)
            sys.exit()
        assert os.waitpid(program, 0)[1] == 0
    """
)


def test_a_program_may_end_in_the_middle_of_an_epoch() -> None:
    done = fork_server.run(["-c", ENDING], timeout=patient(20))
    assert (done.returncode, done.stdout, done.stderr) == (0, "1.0\n" * 5, "")


@pytest.mark.parametrize("seconds", [0.01, 60.0], ids=["between-samples", "within-one"])
def test_they_end_when_the_program_is_killed(seconds: float) -> None:
    program = fork_server.start(["-c", PROGRAM, str(seconds)])
    parent = psutil.Process(program.pid)
    try:
        eventually(lambda: len(parent.children()) == 2, 40)
        workers = parent.children()
    finally:
        program.kill()
        program.wait(20)
    eventually(lambda: not any(worker.is_running() for worker in workers), 30)
