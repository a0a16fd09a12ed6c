"""What is measured: files, real daemons that keep them, and a storage of which every byte counts.

A storage is a folder that is read at a bounded rate. What is read of it is what the kernel says a
process has read (``rchar`` of ``/proc/PID/io``): each byte of each ``read`` and ``pread``, from
wherever it came, and none that came over a socket. So nobody's own counters are believed, and
nothing depends on what the page cache of the machine happens to hold.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import programs
from penstock.data.cache import messages
from penstock.data.cache.client import CacheClient, CacheError

START_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 30.0
"""For an answer, where misses are counted: a program reads on without one that a busy machine
delays, and what is counted then is the machine and not the cache."""
MEAN_BYTES: Final = 110_000
"""Of ImageNet's pictures."""
AHEAD_SECONDS: Final = 0.05
"""How far a storage may be ahead of who reads it."""
_READ_BYTES: Final = 256 << 10


@dataclass(frozen=True)
class Files:
    """A data set: files of like size in one folder."""

    folder: Path
    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        """Bytes of all."""
        return sum(self.sizes)

    def name(self, number: int) -> str:
        """Of one file, from the folder."""
        return f"{number:06d}.bin"

    def path(self, number: int) -> str:
        """Of one file."""
        return f"{self.folder}/{self.name(number)}"


def make_files(folder: Path, count: int, seed: int, mean: int = MEAN_BYTES) -> Files:
    """Files of random bytes, from half to one and a half of the mean."""
    source = np.random.default_rng(seed)
    sizes = tuple(int(size) for size in source.integers(mean // 2, mean * 3 // 2 + 1, count))
    files = Files(folder.resolve(), sizes)
    files.folder.mkdir(parents=True)
    for number, size in enumerate(sizes):
        Path(files.path(number)).write_bytes(source.bytes(size))
    return files


class Limit:
    """Bytes a second, kept over time: it reads ahead, so that who was late catches up."""

    def __init__(self, rate: float) -> None:
        """``rate``: 0: none."""
        self._rate = rate
        self._free = 0.0

    def passed(self, size: int) -> None:
        """So many bytes were read: wait until the storage would have given them."""
        if self._rate:
            now = time.monotonic()
            self._free = max(self._free, now - AHEAD_SECONDS) + size / self._rate
            time.sleep(max(0.0, self._free - now))


class Storage:
    """Files read without a cache."""

    def __init__(self, rate: float = 0.0) -> None:
        self.read_bytes = 0
        self._limit = Limit(rate)

    def read(self, descriptor: int) -> bytes:
        """All of an open file."""
        pieces, at = [], 0
        while piece := os.pread(descriptor, _READ_BYTES, at):
            pieces.append(piece)
            at += len(piece)
            self._limit.passed(len(piece))
        self.read_bytes += at
        return b"".join(pieces)


@dataclass
class Daemon:
    """A daemon that runs."""

    place: str
    process: subprocess.Popen[bytes]
    address: str = ""

    @property
    def read_bytes(self) -> int:
        """Bytes that it has read since it began, its own program among them."""
        with Path(f"/proc/{self.process.pid}/io").open() as lines:
            found = dict(line.split(": ") for line in lines)
        return int(found["rchar"])

    @property
    def cpu_seconds(self) -> float:
        """Of the threads that it has now."""
        found = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(one.read_text().split()[0]) for one in found) / 1e9

    def stat(self, folder: Path) -> dict[str, Any]:
        """What it says of a folder."""
        found: dict[str, Any] = CacheClient(self.place).command(messages.STAT)[str(folder)]
        return found

    def kill(self) -> None:
        """As ``kill -9`` does."""
        programs.kill(self.process)


@contextlib.contextmanager
def daemon(
    folder: Path, memory: int, *, rate: float = 0.0, more: Sequence[str] = (), address: str = ""
) -> Iterator[Daemon]:
    """The real daemon, reading a storage of so many bytes a second (0: as quick as it is)."""
    place = f"@penstock-benchmark-{os.getpid()}-{os.urandom(6).hex()}"
    command = [sys.executable, "-m", "benchmarks.cache_programs.daemon", str(rate)]
    command += ["--socket", place, "--memory", str(memory), f"--paths={folder}", *more]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(place, process)
            yield Daemon(place, process, address)
        finally:
            process.kill()


def patient(place: str) -> CacheClient:
    """A client that waits for its answers."""
    return CacheClient(place, answer_seconds=PATIENCE_SECONDS)


def wait_for(place: str, process: subprocess.Popen[bytes]) -> None:
    """Until a daemon answers. Raises RuntimeError: it does not."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            CacheClient(place).command(messages.STAT)
        except CacheError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"the cache at {place} does not answer")


@dataclass
class Reader:
    """A program that reads files through the cache of its node, and from storage what it lacks."""

    client: CacheClient
    files: Files
    storage: Storage
    longest_seconds: float = 0.0

    def read(self, number: int) -> bytes | memoryview:
        """All of one file."""
        begun = time.perf_counter()
        descriptor = os.open(self.files.path(number), os.O_RDONLY)
        try:
            folder, name = str(self.files.folder), self.files.name(number)
            content = self.client.fetch(descriptor, folder, name).content
            found = self.storage.read(descriptor) if content is None else content
            if content is None:  # as an intercepted file does
                self.client.note_storage(folder, len(found), begun)
        finally:
            os.close(descriptor)
        self.longest_seconds = max(self.longest_seconds, time.perf_counter() - begun)
        if len(found) != self.files.sizes[number]:
            raise RuntimeError(f"{len(found)} bytes of {self.files.path(number)}")
        return found
