"""Programs whose objects are unlike most: being profiled ends none and changes nothing."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.data.clocks import ThreadClock
from penstock.data.profiling import held_window
from penstock.data.profiling.by_identity import ByIdentity
from penstock.data.profiling.record_files import RecordFile, read_records
from penstock.data.profiling.timed_stages import StageTimes, time_stages
from penstock.data.sizes import batch_bytes
from penstock.data.stages import seed_stages, seeded_lists
from tests import fork_server
from tests.data.profiling.test_profile import PENSTOCK, environ, run_program
from tests.patience import patient

FROZEN = """
import dataclasses

@dataclasses.dataclass(frozen=True)
class Frozen:
    transforms: list

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value

def double(value):
    return value * 2
"""

STRANGE = f"""{FROZEN}
import os, time
os.environ["WORLD_SIZE"] = "several"  # of a library that means something else
os.environ["RANK"] = "first"
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __init__(self):
        self.transform = Frozen([double, double])
    def __len__(self):
        raise ValueError("as long as you like")
    def __getitem__(self, index):
        time.sleep(0.001)
        return self.transform(torch.full((10,), float(index)))

@dataclasses.dataclass
class Loader(DataLoader):  # equal to others, and so without a hash
    size: int = 8
    def __post_init__(self):
        super().__init__(Numbers(), batch_size=self.size, sampler=range(400))

def train():
    total = 0.0
    for batch in Loader():
        time.sleep(0.002)
        total += float(batch.sum())
    print(total, flush=True)

train()
"""

UNUSUAL = f"""{FROZEN}
import os, tempfile
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Stream(IterableDataset):
    def __len__(self):
        raise RuntimeError("the length of a stream is not known")

    def __iter__(self):
        for index in range(200):
            yield torch.full((3,), float(index)).to_sparse()

class Rows(Dataset):
    transform = None

    def __init__(self):
        self.transform = Frozen([double, double])

    def __len__(self):
        return 200

    def __getitem__(self, index):
        try:
            open("none").close()
        except FileNotFoundError:
            return self.transform(torch.full((3,), float(index)))

total = 0.0
for batch in DataLoader(Stream(), batch_size=10, collate_fn=torch.stack):
    total += batch.to_dense().sum().item()
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
for batch in DataLoader(Rows(), batch_size=10):
    total += batch.sum().item()
print(total)
"""


@pytest.mark.slow
def test_a_program_that_is_strange_runs_as_alone(tmp_path: Path) -> None:
    alone = run_program(tmp_path, STRANGE)
    profiled = run_program(tmp_path, STRANGE, options=["--no-storage"])
    assert alone.returncode == 0, alone.stderr
    assert profiled.stdout == alone.stdout
    assert profiled.returncode == 0, profiled.stderr
    assert "samples/s" in profiled.stderr


def double(value: int) -> int:
    return value * 2


@dataclass(frozen=True)
class Compose:
    transforms: list[object]

    def __call__(self, value: int) -> int:
        return value


class Holder:
    def __init__(self) -> None:
        self.transform = Compose([double])


def test_a_list_that_cannot_be_replaced_stays() -> None:
    dataset = Holder()
    time_stages(dataset, StageTimes())
    assert type(dataset.transform.transforms) is list


def test_a_file_that_the_program_has_closed_is_never_written_to_again(tmp_path: Path) -> None:
    record = RecordFile(tmp_path, 1)
    record.write({"k": "made"})
    os.close(record._file)
    own = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    assert own == record._file, "the program's file has its number now"
    try:
        record.write({"k": "made"})
        record.close()
        os.write(own, b"mine")  # and it is still open
    finally:
        os.close(own)
    assert (tmp_path / "log").read_bytes() == b"mine"
    assert len(list(read_records(tmp_path))) == 1


def test_a_clock_whose_file_is_the_programs_now_leaves_it_open(tmp_path: Path) -> None:
    clock = ThreadClock()
    if not clock.knows_queue:
        pytest.skip("no /proc/thread-self/schedstat here")
    os.close(clock._file)
    own = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    try:
        assert clock.read().queued == 0.0
        clock.close()
        os.write(own, b"mine")
    finally:
        os.close(own)


class Equal:
    __hash__ = None  # type: ignore[assignment]  # as whoever has an equality of its own

    def __eq__(self, other: object) -> bool:
        return True


def test_objects_are_told_apart_by_which_they_are_and_forgotten_with_them() -> None:
    known: ByIdentity[int] = ByIdentity()
    first, second = Equal(), Equal()
    known.put(first, 1)
    assert known.get(first) == 1
    assert known.get(second) is None
    known.put(first, 2)
    assert known.get(first) == 2
    del first
    gc.collect()
    assert len(known) == 0


class Slow:
    """An iterator of whose two batches one does not come."""

    _index_queues: tuple[()] = ()
    _tasks_outstanding = 2

    def __init__(self) -> None:
        self._data_queue = self._worker_result_queue = self

    def qsize(self) -> int:
        return 1


def test_a_window_that_does_not_fill_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_window, "FILL_SECONDS", 0.05)
    iterator = Slow()
    assert held_window.HeldWindow.possible(iterator)
    assert held_window.HeldWindow(iterator).fill() is None


class Shy:
    @property
    def nbytes(self) -> int:
        raise RuntimeError("nobody asks for that")


def test_a_batch_that_does_not_say_its_size_has_none() -> None:
    assert batch_bytes([Shy(), b"four"]) == 4


@pytest.mark.slow
def test_a_program_prints_what_it_prints_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNUSUAL)
    script = str(tmp_path / "train.py")
    alone = fork_server.run([script], timeout=patient(20), env=environ(), cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    # Both loaders run to their end, which one measured batch after the other would not have it do.
    command = [PENSTOCK, "profile", "-o", str(tmp_path / "p.json"), "--batches", "10000", "--"]
    profiled = subprocess.run(
        [*command, sys.executable, script],
        stdout=subprocess.PIPE,
        text=True,
        timeout=patient(20),
        env=environ(),
        cwd=tmp_path,
        check=True,
    )
    assert profiled.stdout == alone.stdout


def test_a_sparse_tensor_has_no_known_size() -> None:
    assert batch_bytes([torch.eye(3).to_sparse(), torch.ones(2)]) == 8


class _Choosy:
    """Looks its transforms up before it calls them."""

    def __init__(self, transforms: list[Any], skipped: set[Any]) -> None:
        self.transforms, self.skipped = transforms, skipped

    def __call__(self, value: int) -> int:
        for transform in self.transforms:
            if transform not in self.skipped and transform != self.transforms[-1]:
                value = transform(value)
        return value


class _Numbers:
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __getitem__(self, index: int) -> Any:
        return self.transform(index)


def _double(value: int) -> int:
    return value * 2


def _negate(value: int) -> int:
    return -value


def test_transforms_whose_results_are_sized_are_equal_to_themselves() -> None:
    numbers = _Numbers(_Choosy([_double, _negate, abs], {_negate}))
    time_stages(numbers, StageTimes())
    assert [numbers[index] for index in range(12)] == [2 * index for index in range(12)]


def test_what_cannot_be_changed_is_one_stage() -> None:
    class Frozen(_Choosy):
        def __setattr__(self, name: str, value: object) -> None:
            if hasattr(self, name):
                raise AttributeError(name)
            super().__setattr__(name, value)

    numbers = _Numbers(Frozen([_double, _negate], set()))
    time_stages(numbers, StageTimes())
    seed_stages(numbers)
    assert type(numbers.transform.transforms) is list
    assert not seeded_lists(numbers)
