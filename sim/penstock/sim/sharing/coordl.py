"""CoorDL's tables (PVLDB 14(5), section 7): misses of a cache, bytes read, and eight jobs at once.

What can be derived is derived: misses from `penstock.throughput.limits.cache_hits`, the bytes that
eight jobs read from a simulated cache, and how much faster they can become at most. The paper does
not print what its GPUs take, so a speed-up has a limit here and not a prediction. The cache of the
audio jobs is inferred: of 950 GB, 550 are read when each is read once that is not in the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.sim.report.goals import Goal, at_most, near
from penstock.throughput.limits.cache_hits import lru_hits, minio_hits

JOBS: Final = 8
MISSES_SHARE: Final = 0.65
MISSES: Final = {"MinIO": 0.35, "page cache, shuffled": 0.53, "page cache, sequential": 0.66}
DATASET_GB: Final = 950
CACHE_GB: Final = 400
READ_GB: Final = {"each alone": 3500, "shared": 550}
GAINS: Final = {"AlexNet": 3.0, "ShuffleNet": 3.0, "audio M5": 5.6}
FILES: Final = 2_000
"""Of the simulated cache."""
_EPOCHS: Final = 3


@dataclass(frozen=True, slots=True)
class MissRow:
    """Share of the files that are read from storage, where the cache holds 65 %."""

    cache: str
    misses: float
    published: float


@dataclass(frozen=True, slots=True)
class ReadRow:
    """Gigabytes that eight audio jobs read from storage for an epoch of each."""

    jobs: str
    gigabytes: float
    published: float


@dataclass(frozen=True, slots=True)
class GainRow:
    """How much faster eight jobs become when they share: at most, and as published."""

    model: str
    bound_by: str
    at_most: float
    published: float


def misses() -> list[MissRow]:
    """A cache that drops nothing, and one that drops what was used longest ago."""
    found = {
        "MinIO": 1 - minio_hits(MISSES_SHARE),
        "page cache, shuffled": 1 - lru_hits(MISSES_SHARE),
        "page cache, sequential": 1.0,  # what comes next was dropped just before
    }
    return [MissRow(name, round(found[name], 3), MISSES[name]) for name in MISSES]


def reads(seed: int, files: int = FILES) -> list[ReadRow]:
    """Eight jobs that each read in an order of their own, and eight that share one."""
    share = CACHE_GB / DATASET_GB
    together = (1 - minio_hits(share)) * DATASET_GB
    found = {"each alone": read_alone(seed, files, share) * DATASET_GB, "shared": together}
    return [ReadRow(name, round(found[name]), READ_GB[name]) for name in READ_GB]


def read_alone(seed: int, files: int, share: float) -> float:
    """Datasets that eight jobs read in an epoch, through one cache that drops the oldest."""
    source, room, missed = np.random.default_rng(seed), int(files * share), 0
    held: OrderedDict[int, None] = OrderedDict()
    for epoch in range(_EPOCHS):
        orders = np.stack([source.permutation(files) for _ in range(JOBS)])
        for file in orders.T.ravel().tolist():
            if file in held:
                held.move_to_end(file)
                continue
            missed += epoch > 0
            held[file] = None
            if len(held) > room:
                held.popitem(last=False)
    return missed / files / (_EPOCHS - 1)


def gains() -> list[GainRow]:
    """Where making binds, all cores make for one, not an eighth; where reading does, bytes."""
    reading = READ_GB["each alone"] / READ_GB["shared"]
    bound = {"AlexNet": "making", "ShuffleNet": "making", "audio M5": "reading"}
    limits = {"making": float(JOBS), "reading": round(reading, 2)}
    return [GainRow(name, bound[name], limits[bound[name]], GAINS[name]) for name in GAINS]


def goals(
    missing: Sequence[MissRow], read: Sequence[ReadRow], gained: Sequence[GainRow]
) -> list[Goal]:
    """What our side of each table is to reach."""
    by_cache = {row.cache: row for row in missing}
    by_jobs = {row.jobs: row for row in read}
    minio, shared, alone = by_cache["MinIO"], by_jobs["shared"], by_jobs["each alone"]
    most = max(row.published / row.at_most for row in gained)
    return [
        near("misses with MinIO", minio.published, minio.misses, 0.01),
        near("GB read, shared", shared.published, shared.gigabytes, 0.01),
        at_most(
            "GB read, shared, by each alone",
            shared.published / alone.published,
            shared.gigabytes / alone.gigabytes,
        ),
        at_most("published speed-ups by the limit", 1.0, most),
    ]
