"""Lets the threads of Gloo finish before their group or the interpreter ends.

A thread of a process group that lets go of a tensor takes the interpreter's lock for it. Two things
may come first. A model in DistributedDataParallel that outlives ``destroy_process_group`` is the
last to hold its group; with it goes the group, which joins its threads while it holds the lock: on
busy cores, one in forty runs of a script of a few seconds hung for ever after its last line. And
where the interpreter is ending, Python up to 3.13 ends such a thread from within, C++ calls
`std::terminate`, and a program that has trained to its end aborts with exit code 134: with PyTorch
2.13 one in ten runs of such a script did, under torchrun too.

So threads are given the lock until all of them sleep, for a second at most: before a group is
destroyed, and at a process's exit, where garbage is collected as well (a dead model holds its
group, a group without holders joins its threads).
"""

from __future__ import annotations

import atexit
import functools
import gc
import time
from pathlib import Path
from typing import Any, Final

_THREAD: Final = "pt_gloo_runloop"
_LOOKS: Final = 3
"""So many looks in a row that find every thread asleep; one may be between two sleeps."""
_LOOK_SECONDS: Final = 0.005
_MAX_SECONDS: Final = 1.0


def outlive_gloo_threads(distributed: Any) -> None:
    """Let this process's exit wait, and the end of a group; ``distributed``: PyTorch's package."""
    atexit.register(_wait_at_exit)
    destroy = distributed.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*args: Any, **keywords: Any) -> Any:
        _wait()
        return destroy(*args, **keywords)

    distributed.destroy_process_group = destroy_process_group
    distributed.distributed_c10d.destroy_process_group = destroy_process_group


def _wait_at_exit() -> None:
    if _threads_awake() is None:
        return
    _wait()  # what is collected may end a group
    gc.collect()
    _wait()


def _wait() -> None:
    """Until all threads of process groups sleep; not at all where there are none."""
    if _threads_awake() is None:
        return
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
