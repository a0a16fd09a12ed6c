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
    """Seconds of pods, cores, GiB and accelerators.

    Idle is requested and not used; repeated was used for steps that had been trained before. No
    second is both.
    """

    pod_seconds: float = 0.0
    core_seconds: float = 0.0
    idle_core_seconds: float = 0.0
    gib_seconds: float = 0.0
    idle_gib_seconds: float = 0.0
    accelerator_seconds: float = 0.0
    idle_accelerator_seconds: float = 0.0
    repeated_core_seconds: float = 0.0
    repeated_gib_seconds: float = 0.0
    repeated_accelerator_seconds: float = 0.0


NOTHING: Final = Spent()
_PLAIN: Final = 7
"""Figures before those of repeated work."""


def of_columns(columns: RankColumns, seconds: float, repeated: float = 0.0) -> Spent:
    """What the pods of one role spent in one sample of so many seconds.

    ``repeated``: the share of them in which steps were trained again.
    """
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
    cores = math.fsum(given for given, _ in cpu) / 1000 * seconds
    idle_cores = math.fsum(idle for _, idle in cpu) / 1000 * seconds
    gib = math.fsum(given for given, _ in memory) / GIB * seconds
    idle_gib = math.fsum(idle for _, idle in memory) / GIB * seconds
    accelerators = math.fsum(gpus) * seconds
    idle_accelerators = math.fsum(idle_gpus) * seconds
    return Spent(
        pod_seconds=count * seconds,
        core_seconds=cores,
        idle_core_seconds=idle_cores,
        gib_seconds=gib,
        idle_gib_seconds=idle_gib,
        accelerator_seconds=accelerators,
        idle_accelerator_seconds=idle_accelerators,
        repeated_core_seconds=repeated * (cores - idle_cores),
        repeated_gib_seconds=repeated * (gib - idle_gib),
        repeated_accelerator_seconds=repeated * (accelerators - idle_accelerators),
    )


def of_roles(
    roles: Mapping[Role, RankColumns], seconds: float, repeated: float = 0.0
) -> dict[str, Spent]:
    """What each role spent in one sample."""
    return {
        role.value: of_columns(own, seconds, repeated) for role, own in roles.items() if own["rank"]
    }


def total(parts: Iterable[Spent]) -> Spent:
    """The sum."""
    rows = [astuple(part) for part in parts]
    return Spent(*(math.fsum(column) for column in zip(*rows, strict=True))) if rows else NOTHING


def dump(roles: Mapping[str, Spent]) -> str:
    """The roles of a roll-up as JSON, to a thousandth of a second, for the store."""
    rows = {name: [round(value, 3) for value in astuple(own)] for name, own in roles.items()}
    # What was never repeated is left out: a row is as long as those of releases that know of none.
    rows = {name: row if any(row[_PLAIN:]) else row[:_PLAIN] for name, row in rows.items()}
    return json.dumps(rows, separators=(",", ":"))


def load(text: str | None) -> dict[str, Spent]:
    """What `dump` gave; of a row from before there were bills, nothing. Figures that older rows
    do not have are 0."""
    return {name: Spent(*figures) for name, figures in json.loads(text or "{}").items()}


def _requested(columns: RankColumns, used: str, limit: str) -> list[tuple[float, float]]:
    """What each rank was given, and how much of that it left."""
    limits: list[Any] = columns.get(limit) or [None] * len(columns["rank"])
    return [
        (float(given or use), max(0.0, (given or use) - use))
        for use, given in zip(columns[used], limits, strict=True)
    ]
