"""How much memory this pod may still take: what its cgroups and its machine leave.

A container's limit is in its cgroup or in one above it, and neither ``/proc/meminfo`` nor Python
knows it. Pages of files count against it but are given up when memory is short, so they are counted
as free; shared memory is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.data import cgroups
from penstock.data.cgroups import PROC, ROOT

NO_LIMIT_BYTES: Final = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page below 2^63."""
MEASURED_SECONDS: Final = 1.0
ROOM_SHARE: Final = 0.8
"""The part of the free memory that is counted on, for batches or for pages of files: programs grow,
and samples differ in size."""

SHARED_SHARE: Final = 4
"""This part of the memory is kept for jobs that share batches, where nobody says how much."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What may be taken, in bytes.

    Attributes:
        free: before something is killed.
        limit: of the pod; where it has none, the machine's memory.
    """

    free: int
    limit: int


def read_memory(root: Path = ROOT, proc: Path = PROC) -> Memory:
    """What the pod may take, or the machine where that is less.

    Where nothing can be read, as on another system than Linux, there is no limit.
    """
    least = _of_machine(proc)
    for folder in cgroups.folders_v2(root, proc):
        least = _less(least, folder, "memory.max", "memory.current", "")
    for folder in cgroups.folders_v1(root, proc, "memory"):
        least = _less(least, folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
    return least


class MemoryMeter:
    """`read_memory`, at most once in `MEASURED_SECONDS`; for callers who hold a lock."""

    def __init__(
        self,
        read: Callable[[], Memory] = read_memory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._at = float("-inf")
        self._memory = Memory(NO_LIMIT_BYTES, NO_LIMIT_BYTES)

    def measure(self) -> Memory:
        """What may be taken, not older than `MEASURED_SECONDS`."""
        now = self._clock()
        if now - self._at >= MEASURED_SECONDS:
            self._memory = self._read()
            self._at = now
        return self._memory


def room_for_batches(memory: Memory, held_bytes: int) -> int:
    """Memory for all batches that are under way, of which ``held_bytes`` are taken already."""
    return int(ROOM_SHARE * (max(0, memory.free) + held_bytes))


def _less(least: Memory, folder: Path, limit_file: str, used_file: str, prefix: str) -> Memory:
    """The lesser of what is known and what a cgroup's folder says."""
    limit, used = cgroups.number(folder / limit_file), cgroups.number(folder / used_file)
    if limit is None or used is None or limit >= NO_LIMIT_BYTES:
        return least
    stat = cgroups.table(folder / "memory.stat")
    files = stat.get(f"{prefix}inactive_file", 0) + stat.get(f"{prefix}active_file", 0)
    free = max(0, limit - used + files)
    return Memory(min(least.free, free), min(least.limit, limit))


def _of_machine(proc: Path) -> Memory:
    lines = cgroups.table(proc / "meminfo").items()
    table = {name.rstrip(":"): value * 1024 for name, value in lines}
    total = table.get("MemTotal", NO_LIMIT_BYTES)
    return Memory(table.get("MemAvailable", total), total)
