"""What the GPUs of a job's pods do, of one sample, of many, and of several samples as one: pure.

Only what somebody measures is counted: a job without GPUs, or whose agents do not see them, has no
row here, and a figure that no device tells is None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from penstock.base.enums import Role
from penstock.brain.rank_columns import RankColumns, unpack


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The GPUs of one role: how many, their mean utilisation (0 to 1), and sums of the rest."""

    gpus: float
    utilization: float | None = None
    memory_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None


def of_columns(columns: RankColumns) -> GpuUse | None:
    """Those of one role in one sample; None where none is measured."""
    counts = [count or 0 for count in columns.get("gpus", ())]
    if not sum(counts):
        return None
    busy = columns.get("gpu_utilization") or [None] * len(counts)
    return GpuUse(
        gpus=sum(counts),
        utilization=_mean(zip(busy, counts, strict=True)),
        memory_bytes=_sum(columns.get("gpu_memory_bytes", ())),
        memory_total_bytes=_sum(columns.get("gpu_memory_total_bytes", ())),
        power_watts=_sum(columns.get("gpu_power_watts", ())),
    )


def of_roles(roles: Mapping[Role, RankColumns]) -> dict[Role, GpuUse]:
    """Those of each role that has any."""
    found = {role: of_columns(columns) for role, columns in roles.items()}
    return {role: use for role, use in found.items() if use is not None}


def merged(weighted: Sequence[tuple[GpuUse, float]]) -> GpuUse:
    """Several intervals of some seconds each as one: means, except memory, which is the peak."""
    uses = [use for use, _ in weighted]
    totals = [use.memory_total_bytes for use in uses if use.memory_total_bytes is not None]
    peaks = [use.memory_bytes for use in uses if use.memory_bytes is not None]
    return GpuUse(
        gpus=_mean((use.gpus, weight) for use, weight in weighted) or 0.0,
        utilization=_mean((use.utilization, weight * use.gpus) for use, weight in weighted),
        memory_bytes=max(peaks, default=None),
        memory_total_bytes=max(totals, default=None),
        power_watts=_mean((use.power_watts, weight) for use, weight in weighted),
    )


def mean_utilization(samples: Iterable[bytes]) -> dict[Role, float]:
    """The mean utilisation of each role's GPUs over samples, of which these are the packed ranks.

    A role whose devices tell none is left out.
    """
    seen: dict[Role, list[tuple[GpuUse, float]]] = {}
    for packed in samples:
        for role, use in of_roles(unpack(packed)).items():
            seen.setdefault(role, []).append((use, 1.0))
    found = {role: merged(uses).utilization for role, uses in seen.items()}
    return {role: value for role, value in found.items() if value is not None}


def dump(uses: Mapping[str, GpuUse]) -> str | None:
    """The GPUs of a roll-up as JSON, for the store; None where there are none."""
    if not uses:
        return None
    rows = {
        name: [None if figure is None else round(figure, 4) for figure in astuple(use)]
        for name, use in uses.items()
    }
    return json.dumps(rows, separators=(",", ":"))


def load(text: str | None) -> dict[str, GpuUse]:
    """What `dump` gave."""
    return {name: GpuUse(*figures) for name, figures in json.loads(text or "{}").items()}


def _sum(values: Iterable[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def _mean(weighted: Iterable[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None and weight > 0]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / total if known else None
