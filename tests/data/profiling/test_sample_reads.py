"""Samples that come from storage are told from those that come from memory, and made to be some."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.data.profiling.file_reads import EVERY, FilesOpened
from penstock.data.profiling.sample_reads import SampleClock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


class Squares:
    def __getitem__(self, index: int) -> int:
        return index * index


class Whole(Squares):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


def fetcher(dataset: Any, auto_collation: bool = True) -> Any:
    return SimpleNamespace(dataset=dataset, auto_collation=auto_collation)


def test_a_list_that_is_timed_is_a_list_to_everybody() -> None:
    files = FilesOpened()
    clock = SampleClock(files)
    looked = []
    for _ in range(EVERY + 1):
        files.look(True)
        looked.append(type(clock.timed(fetcher(Squares()), [3])) is not list)
    assert looked == [True, *[False] * (EVERY - 1), True]
    timed = clock.timed(fetcher(Squares()), [3, 1, 2])
    assert (timed, len(timed), timed[0], timed[1:]) == ([3, 1, 2], 3, 3, [1, 2])
    assert type(pickle.loads(pickle.dumps(timed))) is list
    assert [one * one for one in timed] == [9, 1, 4]
    found, looking = clock.take()
    assert (found.hits, found.misses) == (3, 0)
    assert 0 < found.hit_cpu < 1
    assert 0 < looking < 1
    assert clock.take()[0].hits == 0


@pytest.mark.parametrize(
    ("given", "indices"),
    [
        (fetcher(Whole()), [1, 2]),  # may want to know its type
        (fetcher(Squares(), auto_collation=False), [1, 2]),
        (fetcher(iter([1])), [1, 2]),
        (fetcher(Squares()), (1, 2)),
        (fetcher(Squares()), 7),
    ],
)
def test_what_is_not_made_sample_by_sample_is_left_as_it_is(given: Any, indices: Any) -> None:
    files = FilesOpened()
    files.look(True)
    assert SampleClock(files).timed(given, indices) is indices


DROPS = """
import sys
from pathlib import Path
from types import SimpleNamespace
from penstock.data.profiling.file_reads import FilesOpened
from penstock.data.profiling.sample_reads import SampleClock

class Files:
    def __init__(self):
        self.paths = sorted(Path(sys.argv[1]).iterdir())
    def __getitem__(self, index):
        return len(self.paths[index].read_bytes())

files, dataset = FilesOpened(), Files()
clock = SampleClock(files)

def make():
    files.look(True)
    indices = clock.timed(SimpleNamespace(dataset=dataset, auto_collation=True), list(range(20)))
    made = [dataset[index] for index in indices]
    files.look(False)
    assert made == [50_000] * 20
    return clock.take()[0]

before = [make() for _ in range(4)][-1]
files.drop(True)
after = make()
print(before.misses, after.hits, after.misses, after.missed, files.spent > 0, len(files.paths))
"""


def test_every_other_sample_is_made_to_come_from_storage(tmp_path: Path) -> None:
    """In a process of its own: audit hooks stay."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(20):
        with (folder / str(number)).open("wb") as file:
            file.write(os.urandom(50_000))
            file.flush()
            os.fsync(file.fileno())
    command = [sys.executable, "-c", DROPS, str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    *counts, missed, spent, files = said.split()
    assert (spent, files) == ("True", "20")
    if missed == "0":  # of a file system that drops nothing, or whose reads nobody counts
        assert counts == ["0", "20", "0"]
    else:
        assert counts == ["0", "10", "10"]
        assert int(missed) >= 10 * 50_000


def test_files_are_dropped_for_some_time_and_no_longer(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"a")
    files = FilesOpened()
    files.drop(True)
    files._until = 0.1  # long ago
    files.drop(True)
    files.look(True)
    files.begin_sample()
    file.read_bytes()
    files.look(False)
    assert files.spent == 0


def test_one_batch_in_some_is_looked_at(tmp_path: Path) -> None:
    files = FilesOpened()
    for number in range(EVERY + 1):
        path = tmp_path / str(number)
        path.write_bytes(b"a")
        files.look(True)
        path.read_bytes()
        files.look(False)
    assert sorted(Path(path).name for path in files.paths) == sorted({"0", str(EVERY)})
