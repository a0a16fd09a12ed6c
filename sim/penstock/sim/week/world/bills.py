"""What jobs are billed for, and what the nodes had: counted apart, so that one can be held to the
other.

A job's bill is the sum over its pods, each from the moment at which it got its node until it left
it, in the Brain's own amounts (`Spent`) and at its own prices. The nodes are metered at the nodes:
before anything changes in their table, what is free of it is multiplied by the time that it was.
What nodes had less what was free and what services held must be the bills (`Balance.off_by`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.brain.model.capacity import Part, shared_out
from penstock.brain.model.spent import GIB, Spent, total
from penstock.scheduler.node_table import NodeTable
from penstock.sim.week.world.outcome import JobOutcome

MOST_OFF: Final = 0.001
"""The most by which bills may differ from what the nodes gave."""
_KINDS: Final = ("core_seconds", "gib_seconds")


@dataclass(slots=True)
class Given:
    """What pods held, in their seconds."""

    core_seconds: float = 0.0
    byte_seconds: float = 0.0
    pod_seconds: float = 0.0

    def add(self, milli_cpu: int, memory_bytes: int, seconds: float) -> None:
        """One pod held so much for so long."""
        self.core_seconds += seconds * milli_cpu / 1000
        self.byte_seconds += seconds * memory_bytes
        self.pod_seconds += seconds


class NodeMeter:
    """Counts at the nodes: what there is and what of it is free, times the time that it is."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._until = 0.0
        rows = table.rows()
        self._cores = float(table.free_milli_cpu[rows].sum()) / 1000
        self._bytes = float(table.free_memory_bytes[rows].sum())
        self._rows = rows
        self._free_milli_cpu_seconds = 0.0
        self._free_byte_seconds = 0.0

    def count(self, now: float) -> None:
        """Called before anything in the table changes, and at the end."""
        seconds = now - self._until
        if seconds > 0:
            table, rows = self._table, self._rows
            self._free_milli_cpu_seconds += seconds * float(table.free_milli_cpu[rows].sum())
            self._free_byte_seconds += seconds * float(table.free_memory_bytes[rows].sum())
            self._until = now

    def had(self) -> dict[str, float]:
        """What the nodes had and what of it was free, as the Brain stores it."""
        return {
            "core_seconds": self._cores * self._until,
            "free_core_seconds": self._free_milli_cpu_seconds / 1000,
            "gib_seconds": self._bytes * self._until / GIB,
            "free_gib_seconds": self._free_byte_seconds / GIB,
            "accelerator_seconds": 0.0,
            "free_accelerator_seconds": 0.0,
        }


@dataclass(frozen=True, slots=True)
class Balance:
    """Bills against nodes, in core-seconds and GiB-seconds; `off_by` is the larger of the two
    differences, as a share of what the nodes gave to training.
    """

    billed: Mapping[str, float]
    nodes: Mapping[str, float]
    off_by: float
    parts: Mapping[str, Mapping[str, float]]
    """Where all that the nodes had went, as `penstock cost --nodes` tells it, by amount."""


def bill(given: Given, outcome: JobOutcome) -> Spent:
    """What a job is billed for, by what it was given and what it did with it."""
    again = outcome.lost_steps / outcome.made_steps if outcome.made_steps > 0 else 0.0
    used_cores = min(outcome.used_core_seconds, given.core_seconds)
    used_bytes = min(outcome.used_byte_seconds, given.byte_seconds)
    return Spent(
        pod_seconds=given.pod_seconds,
        core_seconds=given.core_seconds,
        idle_core_seconds=given.core_seconds - used_cores,
        gib_seconds=given.byte_seconds / GIB,
        idle_gib_seconds=(given.byte_seconds - used_bytes) / GIB,
        repeated_core_seconds=used_cores * again,
        repeated_gib_seconds=used_bytes * again / GIB,
    )


def balance(bills: Sequence[Spent], services: Given, had: Mapping[str, float]) -> Balance:
    """Hold the sum of all bills against what the nodes gave to training."""
    billed = total(bills)
    others = {
        "core_seconds": services.core_seconds,
        "gib_seconds": services.byte_seconds / GIB,
    }
    summed = {kind: float(getattr(billed, kind)) for kind in _KINDS}
    nodes = {kind: had[kind] - had[f"free_{kind}"] - others[kind] for kind in _KINDS}
    parts = shared_out(had, billed)
    return Balance(
        billed=summed,
        nodes=nodes,
        off_by=max(_off(summed[kind], nodes[kind]) for kind in _KINDS),
        parts={kind: {part.value: _of(parts, part, kind) for part in Part} for kind in _KINDS},
    )


def _of(parts: Mapping[Part, Spent], part: Part, kind: str) -> float:
    value: float = getattr(parts[part], kind)
    return value


def _off(billed: float, nodes: float) -> float:
    if nodes <= 0:
        return 0.0 if billed <= 0 else 1.0
    return abs(billed - nodes) / nodes
