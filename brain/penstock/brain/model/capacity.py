"""What the nodes of a cluster had, minute by minute, and where it went; pure.

The cluster is known from pictures that come now and then. A picture stands for the time since the
one before it, for at most `MOST_SECONDS`: whoever was away for longer does not know what was in
between, and says so by what is covered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from penstock.brain.model.rollups import MINUTE, start_of
from penstock.brain.model.spent import GIB, Spent

MOST_SECONDS: Final = 120.0


def amounts(
    nodes: Iterable[Mapping[str, Any]], stranded_accelerators: float, stranded_cores: float
) -> dict[str, float]:
    """What there is, what of it is free, and what of that is stranded, by what a second has."""
    found = list(nodes)

    def together(name: str, unit: float) -> float:
        return math.fsum(float(node.get(name) or 0.0) for node in found) / unit

    return {
        "covered_seconds": 1.0,
        "node_seconds": float(len(found)),
        "core_seconds": together("milli_cpu", 1000),
        "free_core_seconds": together("free_milli_cpu", 1000),
        "stranded_core_seconds": stranded_cores,
        "gib_seconds": together("memory_bytes", GIB),
        "free_gib_seconds": together("free_memory_bytes", GIB),
        "accelerator_seconds": together("accelerators", 1),
        "free_accelerator_seconds": together("free_accelerators", 1),
        "stranded_accelerator_seconds": stranded_accelerators,
    }


def minutes(
    each_second: Mapping[str, float], before: float | None, now: float
) -> Iterator[dict[str, float]]:
    """The amounts of each minute between two pictures, the first of which may be the very first."""
    if before is None or now <= before:
        return
    at = max(before, now - MOST_SECONDS)
    while at < now:
        start = start_of(at, MINUTE)
        until = min(now, start + MINUTE)
        own = {name: value * (until - at) for name, value in each_second.items()}
        yield {"start_seconds": start, **own}
        at = until


class Part(StrEnum):
    """Where the time of nodes went."""

    USED = "Used"
    """By pods of jobs, for steps that they trained once."""
    REPEATED = "Repeated"
    """By pods of jobs, for steps that had been trained before."""
    IDLE = "Idle"
    """Requested by pods of jobs, and not used."""
    OTHERS = "Others"
    """Held by pods of no job, and by pods of jobs while they sent no sample."""
    STRANDED = "Stranded"
    """Free, and of no use for lack of the other resource."""
    FREE = "Free"
    """Free, and of use."""


def shared_out(had: Mapping[str, float], given: Spent) -> dict[Part, Spent]:
    """What nodes had, part by part; together they are that.

    `OTHERS` is what is left, and below zero where pods of jobs were given more than they request.
    """

    def of(kind: str) -> dict[Part, float]:
        name = f"{kind}_seconds"
        free = had[f"free_{name}"]
        stranded = min(free, had.get(f"stranded_{name}", 0.0))
        whole: float = getattr(given, name)
        idle: float = getattr(given, f"idle_{name}")
        repeated: float = getattr(given, f"repeated_{name}")
        return {
            Part.USED: whole - idle - repeated,
            Part.REPEATED: repeated,
            Part.IDLE: idle,
            Part.OTHERS: had[name] - free - whole,
            Part.STRANDED: stranded,
            Part.FREE: free - stranded,
        }

    cores, gib, accelerators = (of(kind) for kind in ("core", "gib", "accelerator"))
    return {
        part: Spent(
            core_seconds=cores[part],
            gib_seconds=gib[part],
            accelerator_seconds=accelerators[part],
        )
        for part in Part
    }
