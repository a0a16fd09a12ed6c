"""What a process and all that it started use: CPU time and memory, each page counted once.

Memory is as a container would be charged for it. The proportional sets of all processes (``Pss``)
count each page once, but of shared memory only what a process has touched: not batches on their way
from one to another. So shared memory is counted by its files, those that the processes have open
and those that they have mapped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_SHARED_NAMES: Final = ("/memfd:", "/dev/shm/")
_BLOCK_BYTES: Final = 512


@dataclass(frozen=True)
class CpuTime:
    """CPU seconds so far: of one process of the tree, and of all."""

    training: float
    tree: float


class ProcessTree:
    """The processes below one, itself included; those that end are no longer counted."""

    def __init__(self, root: int, training: int) -> None:
        """``training``: the one among them that trains."""
        self._root = psutil.Process(root)
        self._training = training
        self._peak_bytes = 0

    def cpu_time(self) -> CpuTime:
        """Of those that live."""
        training = tree = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                tree += times.user + times.system
                if process.pid == self._training:
                    training = times.user + times.system
        return CpuTime(training, tree)

    def peak_training_bytes(self) -> int:
        """The most that the training process ever had in memory, shared memory included."""
        for line in Path(f"/proc/{self._training}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def peak_tree_bytes(self) -> int:
        """The most that all had together at any call of this."""
        self._peak_bytes = max(self._peak_bytes, self._tree_bytes())
        return self._peak_bytes

    def _processes(self) -> list[psutil.Process]:
        return [self._root, *self._root.children(recursive=True)]

    def _tree_bytes(self) -> int:
        total, mapped, opened = 0, dict[int, int](), dict[int, int]()
        for process in self._processes():
            folder = Path(f"/proc/{process.pid}")
            with contextlib.suppress(OSError):
                rollup = (folder / "smaps_rollup").read_text()
                total += _field(rollup, "Pss") - _field(rollup, "Pss_Shmem")
                mapped.update(_mapped(folder))
                opened.update(_opened(folder))
        return total + sum((mapped | opened).values())


def _field(rollup: str, name: str) -> int:
    """Bytes of one line of smaps_rollup; 0 where the kernel has none."""
    _, found, rest = rollup.partition(f"\n{name}:")
    return 1024 * int(rest.split()[0]) if found else 0


def _mapped(folder: Path) -> dict[int, int]:
    """Files of shared memory that a process has mapped, by inode: as much of them as it has."""
    found: dict[int, int] = {}
    for line in (folder / "maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith(_SHARED_NAMES):
            start, _, stop = words[0].partition("-")
            inode = int(words[4])
            found[inode] = found.get(inode, 0) + int(stop, 16) - int(start, 16)
    return found


def _opened(folder: Path) -> Iterator[tuple[int, int]]:
    """Those that it has open: what they take."""
    for entry in (folder / "fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith(_SHARED_NAMES):
                found = entry.stat()
                yield found.st_ino, found.st_blocks * _BLOCK_BYTES
