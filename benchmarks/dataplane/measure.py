"""One measurement inside a system's process; needs only the standard library and NumPy.

A system is a program that reads one JSON object per line (``bytes`` and ``tensors``, or
``workload``; ``seconds``), makes a stream of batches flow from a producer of its own, and prints
what that cost. CPU time
counts for the process and everything that it started, so a helper process cannot hide any.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

CONSUMER_CORE, PRODUCER_CORE = 0, 1
WARM_UP_SECONDS = 0.2
Request = dict[str, Any]
_TICK = os.sysconf("SC_CLK_TCK")


def pin(core: int) -> None:
    """Run this process, and what it starts, on one core (of a machine that has it).

    Whoever started this process may be pinned to another, so what it may use now says nothing.
    """
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {core})


def ready_batch(size: int, tensors: int) -> dict[str, np.ndarray[Any, Any]]:
    """A batch of ``size`` bytes in so many arrays of random bytes."""
    chance = np.random.default_rng(0)
    each = size // tensors
    return {f"t{n}": chance.integers(0, 255, each, np.uint8) for n in range(tensors)}


def cpu_seconds() -> tuple[float, float]:
    """CPU time of this process, and of all its descendants (of dead ones, if waited for)."""
    parents, spent = {}, {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            rest = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(folder.name)
        parents[pid] = int(rest[1])
        spent[pid] = sum(map(int, rest[11:15])) / _TICK
    own = {os.getpid()}
    grown = True
    while grown:
        found = {pid for pid, parent in parents.items() if parent in own} - own
        grown = bool(found)
        own |= found
    here = spent[os.getpid()]
    return here, sum(spent.get(pid, 0.0) for pid in own) - here


def serve(start: Callable[[Request], Iterator[Any]]) -> None:
    """Answer requests until the input ends; ``start`` gives endless batches."""
    print(json.dumps({"up": True}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        batches = start(wanted)
        until = time.perf_counter() + WARM_UP_SECONDS
        for _ in range(8):
            next(batches)
        while time.perf_counter() < until:
            next(batches)
        count, (here, elsewhere), began = 0, cpu_seconds(), time.perf_counter()
        while time.perf_counter() - began < wanted["seconds"]:
            next(batches)
            count += 1
        seconds = time.perf_counter() - began
        after = cpu_seconds()
        del batches
        answer = {
            "batches": count,
            "seconds": seconds,
            "consumer_cpu": after[0] - here,
            "producer_cpu": after[1] - elsewhere,
        }
        print(json.dumps(answer), flush=True)
