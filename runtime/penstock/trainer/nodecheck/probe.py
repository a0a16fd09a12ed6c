"""What a pod measures of its machine: a matrix product and a copy within memory.

Rates over a span of wall time, not the best of many short runs: a machine that is stopped now and
then (a CPU quota, a neighbour) is slow although each short run is fast. Without numpy nothing is
measured, and nothing held against the machine.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import Any, Final

from penstock.data.cores import usable_cores
from penstock.data.machine import machine

COMPUTE_SECONDS: Final = 0.25
MEMORY_SECONDS: Final = 0.2
_SIDE: Final = 192
_COPIED_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class OwnSpeeds:
    """Floating-point operations and bytes per second; None: not measured."""

    compute: float | None = None
    memory: float | None = None


def hardware() -> str:
    """What machines are compared by: the kind of processor, and how much of it a pod may use."""
    return f"{machine()}, {usable_cores():g} cores"[:128]


def measure(
    compute_seconds: float = COMPUTE_SECONDS, memory_seconds: float = MEMORY_SECONDS
) -> OwnSpeeds:
    """Measure this machine, for about as long as that."""
    if importlib.util.find_spec("numpy") is None:
        return OwnSpeeds()
    import numpy as np

    one = np.full((_SIDE, _SIDE), 0.5, np.float32)
    product = one @ one  # the first product starts the library's threads
    compute = _rate(lambda: np.matmul(one, one, out=product), 2.0 * _SIDE**3, compute_seconds)
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.empty_like(source)
    memory = _rate(lambda: np.copyto(target, source), float(_COPIED_BYTES), memory_seconds)
    return OwnSpeeds(compute, memory)


def _rate(work: Any, amount: float, seconds: float) -> float:
    work()
    began = time.perf_counter()
    done = 0
    while (spent := time.perf_counter() - began) < seconds or done == 0:
        work()
        done += 1
    return amount * done / max(spent, 1e-9)
