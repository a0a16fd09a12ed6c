"""What a thread did with its time: on a core, waiting for one, or blocked.

    wall = CPU + run queue + blocked

Linux counts the second in ``/proc/thread-self/schedstat``, which costs a microsecond to read; where
there is none (other systems, some sandboxes) it reads as 0 and counts as blocked.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

_SCHEDSTAT: Final = "/proc/thread-self/schedstat"


class Moment(NamedTuple):
    """Seconds: of the machine's monotonic clock, on a core, in the run queue."""

    wall: float
    cpu: float
    queued: float


class ThreadClock:
    """The clock of the thread that makes it, and of no other."""

    def __init__(self, path: str = _SCHEDSTAT) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    @property
    def knows_queue(self) -> bool:
        """Whether waiting for a core is told from being blocked."""
        return self._file >= 0

    def read(self) -> Moment:
        """Now."""
        queued = 0.0
        if self._file >= 0:
            try:
                queued = int(os.pread(self._file, 64, 0).split()[1]) * 1e-9
            except (OSError, IndexError, ValueError):
                self._file = -1  # a program that closes what it does not know has its own there
        return Moment(time.monotonic(), time.thread_time(), queued)

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def busy_seconds(path: str = "/proc/stat") -> float:
    """CPU seconds of everybody on this machine since it began; 0 where the system does not say."""
    try:
        with Path(path).open() as file:
            fields = [int(one) for one in file.readline().split()[1:]]
    except (OSError, ValueError):
        return 0.0
    user, nice, system, _idle, _waiting, interrupts, soft = fields[:7]
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


class BytesRead:
    """Bytes that this process has read, and how many of them came from storage."""

    def __init__(self, path: str = "/proc/self/io") -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def read(self) -> tuple[int, int]:
        """All bytes, and those that were not in memory; zeros where the system does not say."""
        if self._file < 0:
            return 0, 0
        try:
            fields = dict(
                line.split(b":") for line in os.pread(self._file, 1024, 0).splitlines() if line
            )
            return int(fields[b"rchar"]), int(fields[b"read_bytes"])
        except (OSError, KeyError, ValueError):
            return 0, 0

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
