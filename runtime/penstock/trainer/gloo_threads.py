"""Lets the threads of Gloo finish before the interpreter ends.

A thread of a process group that lets go of a tensor takes the interpreter's lock for it. Where the
interpreter is ending, Python up to 3.13 ends such a thread from within, C++ calls `std::terminate`,
and a program that has trained to its end aborts with exit code 134: with PyTorch 2.13 one in ten
runs of a script of a few seconds did, under torchrun too. So at a process's exit, garbage is
collected (a dead model holds its group, a group without holders joins its threads), and the threads
of groups that are still held are given the lock until all of them sleep, for a second at most.
"""

from __future__ import annotations

import atexit
import gc
import time
from pathlib import Path
from typing import Final

_THREAD: Final = "pt_gloo_runloop"
_LOOKS: Final = 3
"""So many looks in a row that find every thread asleep; one may be between two sleeps."""
_LOOK_SECONDS: Final = 0.005
_MAX_SECONDS: Final = 1.0


def outlive_gloo_threads() -> None:
    """Let this process's exit wait; called once PyTorch is imported."""
    atexit.register(_wait)


def _wait() -> None:
    if _threads_awake() is None:
        return
    gc.collect()
    until = time.monotonic() + _MAX_SECONDS
    asleep = 0
    while asleep < _LOOKS and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)  # which lets go of the lock
        awake = _threads_awake()
        if awake is None:
            return
        asleep = 0 if awake else asleep + 1


def _threads_awake() -> int | None:
    """How many threads of process groups run or want to; None: there are none at all."""
    states = []
    for task in Path("/proc/self/task").glob("*"):
        try:
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has ended
        if name == _THREAD:
            states.append(rest.split()[0])
    return sum(state != "S" for state in states) if states else None
