"""Programs that forbid what others allow: profiled they do what they do alone."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.data.clocks import ThreadClock
from penstock.data.profiling import held_window
from penstock.data.profiling.by_identity import ByIdentity
from penstock.data.profiling.record_files import RecordFile, read_records
from penstock.data.profiling.timed_stages import StageTimes, time_stages
from penstock.data.sizes import batch_bytes
from tests.data.profiling.test_profile import run_program

STRANGE = """
import os, sys, time
from dataclasses import dataclass
os.environ["WORLD_SIZE"] = "several"  # of a library that means something else
os.environ["RANK"] = "first"
import torch
from torch.utils.data import DataLoader, Dataset

@dataclass(frozen=True)
class Compose:
    transforms: list
    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value

def double(value):
    return value * 2

class Numbers(Dataset):
    def __init__(self):
        self.transform = Compose([double, double])
    def __len__(self):
        raise ValueError("as long as you like")
    def __getitem__(self, index):
        time.sleep(0.001)
        return self.transform(torch.full((10,), float(index)))

@dataclass
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
