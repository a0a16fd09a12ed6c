"""How a process spends its time, for the cache to know who waits for files.

A process that another one made for it prepares files ahead of a training (a worker of a
DataLoader): when it neither computes, nor waits for files or for a core, the training has enough.
In a program's first process such time may be the training itself, and says nothing.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from penstock.crds import environment as names

_SCHEDULED: Final = "/proc/self/schedstat"
_MICRO: Final = 1e6


class ProcessTimes:
    """What was spent since it was asked last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """From now on."""
        self._at, self._idle_at = self._clock(), _not_idle_seconds()

    def take(self, fetching: float) -> dict[str, float]:
        """Microseconds since the last time, of which so many seconds were spent on fetching."""
        elapsed, busy = self._clock() - self._at, _not_idle_seconds() - self._idle_at
        self.begin()
        slack = max(0.0, elapsed - busy - fetching) if _made_by_other() is not None else 0.0
        return {"elapsed_us": elapsed * _MICRO, "slack_us": slack * _MICRO}


def job_name(environ: Mapping[str, str] = os.environ) -> str:
    """The same for all processes of a job on a node, as far as it can be known."""
    if job := environ.get(names.JOB_UID):
        return job
    return f"{socket.gethostname()}/{_made_by_other() or os.getpid()}"


def _made_by_other() -> int | None:
    """The process that this one works for; None: it is a program's first."""
    if "multiprocessing.process" not in sys.modules:
        return None
    from multiprocessing import parent_process

    parent = parent_process()
    return None if parent is None else parent.pid


def _not_idle_seconds() -> float:
    """For how long this process has computed, or waited for a core to compute on."""
    waited = 0.0
    try:
        descriptor = os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC)
        try:
            waited = int(os.read(descriptor, 256).split()[1]) / 1e9
        finally:
            os.close(descriptor)
    except (OSError, IndexError, ValueError):
        pass  # a system without it
    return time.process_time() + waited
