"""What a training process and all that it started use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from typing import Final

import psutil

from penstock.job.protocol import GpuUsage, Usage

SHARES_SECONDS: Final = 5.0
"""How often the memory of a tree of processes is measured: the kernel walks through all of it."""


class ProcessMeter:
    """CPU, memory and GPUs of some processes and all their descendants.

    Memory that several of them share counts once: the workers of a loader are forks of the program,
    and hold its batches too, so that the sum of what each of them has would be many times as much.
    """

    def __init__(
        self,
        pids: Callable[[], Collection[int]],
        gpus: Callable[[Collection[int]], tuple[GpuUsage, ...]] = lambda _: (),
    ) -> None:
        """Measure what these processes use, which may be others each time.

        Args:
            pids: the process ids, now.
            gpus: what processes of these ids use of each device; it does not wait.
        """
        self._pids = pids
        self._gpus = gpus
        self._cpu_seconds: dict[int, float] = {}
        self._measured = time.monotonic()
        self._shares: tuple[float, int] | None = None

    def read(self) -> Usage | None:
        """Mean cores used since the last call and memory now; None when no process is left."""
        tree, memory, roots = [], 0, self._pids()
        for pid in roots:
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(pid)
                found = [root, *root.children(recursive=True)]
                memory += root.memory_info().rss
                tree += found
        if not tree:
            return None
        spent, seconds = 0.0, {}
        for process in tree:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                seconds[process.pid] = times.user + times.system
                spent += seconds[process.pid] - self._cpu_seconds.get(process.pid, 0.0)
        now = time.monotonic()
        if len(tree) > 1:
            if self._shares is None or now - self._shares[0] >= SHARES_SECONDS:
                self._shares = (now, sum(map(_proportional_bytes, tree)))
            memory = max(memory if len(roots) == 1 else 0, self._shares[1])
        span, self._measured = now - self._measured, now
        self._cpu_seconds = seconds
        return Usage(
            cpu_cores=max(0.0, spent) / span if span > 0 else 0.0,
            memory_bytes=memory,
            gpus=self._gpus({process.pid for process in tree}),
        )


def _proportional_bytes(process: psutil.Process) -> int:
    """Its memory, what is shared in proportion to those who share it; 0 when it is gone."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:  # noqa: PTH123 - no path is made of it
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except OSError:
        pass  # another user's process, or a kernel that does not tell
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
