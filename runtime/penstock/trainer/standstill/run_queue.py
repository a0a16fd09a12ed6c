"""How long the processes of a pod have waited for a core since their last steps.

A process that others leave no core, or that its container's CPU limit holds back, takes no steps
either, and does not hang. Linux counts for each thread what it has waited ready to run
(``/proc/PID/task/TID/schedstat``), a CPU limit's pauses included. Said is the longest wait of any
thread of a process and of what it has started: its main thread may wait for one of them, as for a
DataLoader's. One that is blocked, as in a lock, waits for no core.

Threads are read only of processes that have paused for `PAUSE_SECONDS`, so that a training that
goes on costs nothing; what was waited for before is not counted.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from penstock.job.protocol import TrainingProcess

PAUSE_SECONDS: Final = 1.5
MAX_THREADS: Final = 512
"""Of one process and what it has started."""
_SAME_STEP_SECONDS: Final = 0.25
"""Two reports give the moment of one step alike, but for when clocks were read."""


class ThreadTimes(NamedTuple):
    """Seconds that a thread has had a core, and has waited for one, so far."""

    used: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class _Pause:
    last_step: float
    threads: dict[tuple[int, int], ThreadTimes]
    """By process and thread, as the pause was noticed."""


class RunQueues:
    """Of the training processes of one pod."""

    def __init__(self) -> None:
        self._pauses: dict[int, _Pause] = {}

    def note(
        self, processes: tuple[TrainingProcess, ...] | None
    ) -> tuple[TrainingProcess, ...] | None:
        """The same processes, each with its use of cores and its wait for them in a pause."""
        if processes is None:
            return None
        now = time.monotonic()
        paused = {
            one.pid for one in processes if one.seconds is not None and one.idle > PAUSE_SECONDS
        }
        for pid in self._pauses.keys() - paused:
            del self._pauses[pid]
        return tuple(self._noted(one, now) if one.pid in paused else one for one in processes)

    def _noted(self, process: TrainingProcess, now: float) -> TrainingProcess:
        last_step = now - process.idle
        threads = times_of(process.pid)
        known = self._pauses.get(process.pid)
        if known is None or abs(known.last_step - last_step) > _SAME_STEP_SECONDS:
            self._pauses[process.pid] = _Pause(last_step, threads)
            return process
        queued, used = 0.0, 0.0
        for thread, times in threads.items():
            before = known.threads.get(thread, ThreadTimes())
            queued = max(queued, times.waited - before.waited)
            used += max(0.0, times.used - before.used)
        return process.model_copy(update={"queued": min(queued, process.idle), "used": used})


def times_of(pid: int) -> dict[tuple[int, int], ThreadTimes]:
    """Of each thread of a process and of what it has started, those that live."""
    try:
        process = psutil.Process(pid)
        tree = [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.Error:
        return {}
    found: dict[tuple[int, int], ThreadTimes] = {}
    for one in tree:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                if len(found) >= MAX_THREADS:
                    return found
                with contextlib.suppress(OSError, IndexError, ValueError):
                    used, waited, *_ = map(int, (task / "schedstat").read_text().split())
                    found[one, int(task.name)] = ThreadTimes(used * 1e-9, waited * 1e-9)
    return found
