"""What pods were given, for how long, and how much of it they used: sums that add up exactly.

One sample says what each pod requested and used over its interval. Here that becomes core-seconds,
GiB-seconds and accelerator-seconds, which are added and never averaged: the sum over minutes, jobs
and namespaces is the sum over pods, whatever the length of the samples. What a pod requested is
taken from what it reports as its limit; one that reports none is taken to have requested what it
used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final

from penstock.base.enums import Role
from penstock.brain.rank_columns import RankColumns

GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of pods, cores, GiB and accelerators; idle is requested and not used."""

    pod_seconds: float = 0.0
    core_seconds: float = 0.0
    idle_core_seconds: float = 0.0
    gib_seconds: float = 0.0
    idle_gib_seconds: float = 0.0
    accelerator_seconds: float = 0.0
    idle_accelerator_seconds: float = 0.0


NOTHING: Final = Spent()


def of_columns(columns: RankColumns, seconds: float) -> Spent:
    """What the pods of one role spent in one sample of so many seconds."""
    cpu = _requested(columns, "milli_cpu", "milli_cpu_limit")
    memory = _requested(columns, "memory_bytes", "memory_limit_bytes")
    count = len(columns["rank"])
    gpus = [gpu or 0 for gpu in columns.get("gpus", ())]
    busy = columns.get("gpu_utilization") or [None] * len(gpus)
    idle_gpus = (
        gpu * (1 - min(share, 1.0))
        for gpu, share in zip(gpus, busy, strict=True)
        if share is not None
    )
    return Spent(
        pod_seconds=count * seconds,
        core_seconds=math.fsum(given for given, _ in cpu) / 1000 * seconds,
        idle_core_seconds=math.fsum(idle for _, idle in cpu) / 1000 * seconds,
        gib_seconds=math.fsum(given for given, _ in memory) / GIB * seconds,
        idle_gib_seconds=math.fsum(idle for _, idle in memory) / GIB * seconds,
        accelerator_seconds=math.fsum(gpus) * seconds,
        idle_accelerator_seconds=math.fsum(idle_gpus) * seconds,
    )


def of_roles(roles: Mapping[Role, RankColumns], seconds: float) -> dict[str, Spent]:
    """What each role spent in one sample."""
    return {role.value: of_columns(own, seconds) for role, own in roles.items() if own["rank"]}


def total(parts: Iterable[Spent]) -> Spent:
    """The sum."""
    rows = [astuple(part) for part in parts]
    return Spent(*(math.fsum(column) for column in zip(*rows, strict=True))) if rows else NOTHING


def dump(roles: Mapping[str, Spent]) -> str:
    """The roles of a roll-up as JSON, to a thousandth of a second, for the store."""
    rows = {name: [round(value, 3) for value in astuple(own)] for name, own in roles.items()}
    return json.dumps(rows, separators=(",", ":"))


def load(text: str | None) -> dict[str, Spent]:
    """What `dump` gave; of a row from before there were bills, nothing."""
    return {name: Spent(*figures) for name, figures in json.loads(text or "{}").items()}


def _requested(columns: RankColumns, used: str, limit: str) -> list[tuple[float, float]]:
    """What each rank was given, and how much of that it left."""
    limits: list[Any] = columns.get(limit) or [None] * len(columns["rank"])
    return [
        (float(given or use), max(0.0, (given or use) - use))
        for use, given in zip(columns[used], limits, strict=True)
    ]
