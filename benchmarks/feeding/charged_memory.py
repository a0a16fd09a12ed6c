"""What a container would have been charged for: the most memory that a cgroup of its own ever had.

Resident sets miss what no process has mapped: batches that lie in shared memory between the process
that made them and the one that takes them. A cgroup is charged for every page that its processes
were the first to touch, mapped or not, and keeps the highest sum itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PLACES: Final = (
    (Path("/sys/fs/cgroup/memory"), "memory.max_usage_in_bytes"),  # version 1
    (Path("/sys/fs/cgroup"), "memory.peak"),
)
REMOVAL_SECONDS: Final = 5.0


class ChargedMemory:
    """A memory cgroup of one's own; without the right to make one it knows nothing."""

    def __init__(self, folder: Path | None, peak: str) -> None:
        self._folder = folder
        self._peak = peak

    def take(self, pid: int) -> None:
        """Charge a process from now on, and what it starts."""
        if self._folder is not None:
            (self._folder / "cgroup.procs").write_text(str(pid))

    def peak_bytes(self) -> int | None:
        """The most so far; None where it cannot be known."""
        if self._folder is None:
            return None
        return int((self._folder / self._peak).read_text())


@contextmanager
def charged_memory() -> Iterator[ChargedMemory]:
    """Such a cgroup, until the end of the block."""
    for parent, peak in PLACES:
        folder = parent / f"penstock-benchmark-{os.getpid()}-{time.monotonic_ns()}"
        with suppress(OSError):
            folder.mkdir()
            if (folder / peak).exists():
                try:
                    yield ChargedMemory(folder, peak)
                finally:
                    _remove(folder)
                return
            folder.rmdir()
    yield ChargedMemory(None, "")


def _remove(folder: Path) -> None:
    """Once its last process has ended."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)
