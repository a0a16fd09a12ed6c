"""What files are dropped from memory, and that the program has no harm by it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.data.profiling import cold_reads, file_reads
from penstock.data.profiling.file_reads import FilesOpened
from penstock.data.profiling.page_cache import LARGEST_BYTES
from penstock.data.profiling.sample_reads import SampleClock
from tests.patience import patient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths that were opened by their names, in this process, by other than ``open``."""
    found: list[str] = []
    plain = os.open

    def note(path: Any, *arguments: Any, **named: Any) -> int:
        found.append(str(path))
        return plain(path, *arguments, **named)

    monkeypatch.setattr(os, "open", note)
    return found


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Descriptors of files that would have been dropped."""
    found: list[int] = []
    monkeypatch.setattr(file_reads, "give_up", found.append)
    return found


@pytest.fixture
def files() -> FilesOpened:
    """Those of a process that drops them in the batch which it makes now."""
    made = FilesOpened()
    made.drop(True)
    made.look(True)
    return made


def one_sample(files: FilesOpened, paths: list[Path]) -> None:
    """Open files as the making of a sample does."""
    files.begin_sample()
    for path in paths:
        path.read_bytes()
    files.end_samples()
    files.look(False)


def test_a_fifo_is_not_opened_whose_writer_would_go_on(tmp_path: Path, opened: list[str]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    files = FilesOpened()
    files._drop(str(fifo))
    assert not cold_reads._drop(str(fifo))
    assert opened == []


@pytest.mark.parametrize("name", ["none", "a\0b", "\ud800"])
def test_what_is_no_files_name_is_no_error_of_whoever_opens_it(tmp_path: Path, name: str) -> None:
    files = FilesOpened()
    files._drop(str(tmp_path / name))
    assert not cold_reads._drop(str(tmp_path / name))


def test_of_a_large_file_only_the_begin_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, asked = tmp_path / "large", list[int]()
    with large.open("wb") as file:
        file.truncate(4 * LARGEST_BYTES)

    def note(_: int, offset: int, length: int, advice: int) -> None:
        asked.append(offset + (length or 4 * LARGEST_BYTES))

    monkeypatch.setattr(os, "posix_fadvise", note)
    FilesOpened()._drop(str(large))
    cold_reads._drop(str(large))
    assert asked == [LARGEST_BYTES] * 2


@pytest.mark.parametrize(("most", "seconds", "dropped"), [(3, 60.0, 3), (200, 0.0, 0)])
def test_one_batch_of_many_files_does_not_drop_more(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given_up: list[int],
    files: FilesOpened,
    most: int,
    seconds: float,
    dropped: int,
) -> None:
    paths = [tmp_path / str(number) for number in range(10)]
    for path in paths:
        path.write_bytes(b"a")
    monkeypatch.setattr(file_reads, "MOST_DROPPED", most)
    files.begin_sample()
    monkeypatch.setattr(files, "_until", files._until - file_reads.MOST_SECONDS + seconds)
    for path in paths:
        path.read_bytes()
    files.look(False)
    assert len(given_up) == dropped


def test_nothing_is_dropped_between_samples(
    tmp_path: Path, given_up: list[int], files: FilesOpened
) -> None:
    """A program's collating may open files, too, and they belong to no sample."""
    (tmp_path / "a").write_bytes(b"a")
    fetcher = SimpleNamespace(dataset=[tmp_path / "a"], auto_collation=True)
    for index in SampleClock(files).timed(fetcher, [0]):
        fetcher.dataset[index].read_bytes()
    assert len(given_up) == 1
    fetcher.dataset[0].read_bytes()
    files.look(False)
    assert len(given_up) == 1


def test_files_that_other_threads_open_cost_the_maker_nothing(
    tmp_path: Path, given_up: list[int], files: FilesOpened
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    files.begin_sample()
    thread = threading.Thread(target=(tmp_path / "a").read_bytes)
    thread.start()
    thread.join(patient(10))
    files.look(False)
    assert len(given_up) == 1
    assert files.spent == 0


def test_a_batch_that_ends_while_a_thread_drops_a_file_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: FilesOpened
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    monkeypatch.setattr(file_reads, "give_up", lambda _: files.look(False))
    one_sample(files, [tmp_path / "a"])
    files.begin_sample()
    monkeypatch.setattr(file_reads, "give_up", lambda _: pytest.fail("it was to stop"))
    (tmp_path / "a").read_bytes()


class Clock:
    """A second passes whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_files_of_a_slow_storage_are_not_all_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(cold_reads, "time", SimpleNamespace(monotonic=Clock()))
    monkeypatch.setattr(cold_reads, "_drop", dropped.append)
    assert cold_reads.read_cold([str(number) for number in range(200)], 1) is None
    assert 0 < len(dropped) <= cold_reads.MOST_SECONDS / 2


def test_a_file_that_takes_long_to_read_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(bytes(4 << 20))
    monkeypatch.setattr(cold_reads, "time", SimpleNamespace(monotonic=Clock()))
    assert 0 < cold_reads._read(str(tmp_path / "a"), 3.0) < 4 << 20
    assert cold_reads._read(str(tmp_path / "a"), most=1000) == 1000
