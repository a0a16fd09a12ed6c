"""Many samples as one row: pure.

A roll-up holds means, weighted by the time that each sample covers; memory is the peak, the step
is the newest, and what was spent is the sum. Ten minutes are summed up from their minutes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.brain.model import gpu_use, spent
from penstock.brain.model.gpu_use import GpuUse
from penstock.brain.model.spent import Spent
from penstock.brain.rank_columns import unpack

MINUTE: Final = 60
TEN_MINUTES: Final = 600


@dataclass(frozen=True, slots=True)
class RoleUse:
    """What the pods of one role used: how many, the sum of their CPU, the CPU of the busiest, the
    largest peak of memory, and the sum of the peaks."""

    replicas: float
    milli_cpu: float
    hottest_milli_cpu: float
    peak_memory_bytes: float
    total_memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """Some samples of one job, summed up."""

    samples: int
    seconds: float
    step: int
    epoch: int
    steps_per_second: float
    samples_per_second: float
    world_size: int
    received_seconds: float
    roles: Mapping[str, RoleUse]
    gpus: Mapping[str, GpuUse] = field(default_factory=dict)
    """By role; empty where none is measured."""
    spent: Mapping[str, Spent] = field(default_factory=dict)
    """By role: what the pods were given, and left."""
    peak_step: int = 0
    """The highest step of the job until the end of these samples; 0: not known."""


def start_of(at_seconds: float, resolution: int) -> float:
    """Start of the interval that a moment lies in."""
    return math.floor(at_seconds / resolution) * float(resolution)


def of_sample(
    *,
    seconds: float,
    step: int,
    epoch: int,
    steps_per_second: float,
    samples_per_second: float,
    world_size: int,
    received_seconds: float,
    ranks: bytes,
    repeated: float = 0.0,
    peak_step: int = 0,
) -> Rollup:
    """One sample, in the form in which samples are summed up.

    ``repeated``: the share of it in which steps were trained again, up to ``peak_step``.
    """
    columns_of = unpack(ranks)
    return Rollup(
        samples=1,
        seconds=seconds,
        step=step,
        epoch=epoch,
        steps_per_second=steps_per_second,
        samples_per_second=samples_per_second,
        world_size=world_size,
        received_seconds=received_seconds,
        roles={
            role.value: RoleUse(
                replicas=len(columns["rank"]),
                milli_cpu=math.fsum(columns["milli_cpu"]),
                hottest_milli_cpu=max(columns["milli_cpu"]),
                peak_memory_bytes=max(columns["memory_bytes"]),
                total_memory_bytes=sum(columns["memory_bytes"]),
            )
            for role, columns in columns_of.items()
            if columns["rank"]
        },
        gpus={role.value: use for role, use in gpu_use.of_roles(columns_of).items()},
        spent=spent.of_roles(columns_of, seconds, repeated),
        peak_step=peak_step,
    )


def merge(parts: Iterable[Rollup]) -> Rollup:
    """The sum of several roll-ups.

    Raises:
        ValueError: There is none.
    """
    rows = list(parts)
    if not rows:
        raise ValueError("merge needs at least one roll-up")
    newest = max(rows, key=lambda row: row.step)
    names = sorted({name for row in rows for name in row.roles})
    with_gpus = sorted({name for row in rows for name in row.gpus})
    return Rollup(
        samples=sum(row.samples for row in rows),
        seconds=math.fsum(row.seconds for row in rows),
        step=newest.step,
        epoch=max(row.epoch for row in rows),
        steps_per_second=_mean([(row.steps_per_second, row.seconds) for row in rows]),
        samples_per_second=_mean([(row.samples_per_second, row.seconds) for row in rows]),
        world_size=newest.world_size,
        received_seconds=max(row.received_seconds for row in rows),
        roles={
            name: _uses([(row.roles[name], row.seconds) for row in rows if name in row.roles])
            for name in names
        },
        gpus={
            name: gpu_use.merged(
                [(row.gpus[name], row.seconds) for row in rows if name in row.gpus]
            )
            for name in with_gpus
        },
        spent={
            name: spent.total(row.spent[name] for row in rows if name in row.spent)
            for name in sorted({name for row in rows for name in row.spent})
        },
        peak_step=max(row.peak_step for row in rows),
    )


def dump_roles(roles: Mapping[str, RoleUse]) -> str:
    """The roles of a roll-up as JSON, for the store."""
    return json.dumps(
        {
            name: [
                round(use.replicas, 3),
                round(use.milli_cpu, 1),
                round(use.hottest_milli_cpu, 1),
                round(use.peak_memory_bytes),
                round(use.total_memory_bytes),
            ]
            for name, use in roles.items()
        },
        separators=(",", ":"),
    )


def load_roles(text: str) -> dict[str, RoleUse]:
    """What `dump_roles` gave."""
    return {name: RoleUse(*figures) for name, figures in json.loads(text).items()}


def _mean(weighted: Sequence[tuple[float, float]]) -> float:
    total = math.fsum(weight for _, weight in weighted)
    if total <= 0:
        return math.fsum(value for value, _ in weighted) / len(weighted)
    return math.fsum(value * weight for value, weight in weighted) / total


def _uses(weighted: Sequence[tuple[RoleUse, float]]) -> RoleUse:
    return RoleUse(
        replicas=_mean([(use.replicas, weight) for use, weight in weighted]),
        milli_cpu=_mean([(use.milli_cpu, weight) for use, weight in weighted]),
        hottest_milli_cpu=_mean([(use.hottest_milli_cpu, weight) for use, weight in weighted]),
        peak_memory_bytes=max(use.peak_memory_bytes for use, _ in weighted),
        total_memory_bytes=max(use.total_memory_bytes for use, _ in weighted),
    )
