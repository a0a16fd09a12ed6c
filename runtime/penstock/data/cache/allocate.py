"""How many bytes of a cache each data set gets: pure.

A job that fetches at ``F(x) = 1 / (x / C + (1 - x) / S)`` (DS-Analyzer, PVLDB 14(5), section 5.1)
needs no more cache once ``F(x) >= min(P, G)``, the rate at which it prepares and trains. Until then
each further byte shortens its stall, most where storage is slow and the data set is read often. The
next byte goes to the job whose stall it shortens most, as SiloD (EuroSys 23) divides a cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.throughput.limits.cache_hits import cache_for, fetch_rate, minio_hits

PORTIONS: Final = 1000
"""A cache is given away in so many parts."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A data set, and who reads it.

    Attributes:
        size: bytes of the data set.
        cache_rate: bytes a second from memory (C).
        storage_rate: bytes a second from storage (S).
        needed_rate: bytes a second that would be no stall (min(P, G)); infinite where unknown.
    """

    size: int
    cache_rate: float
    storage_rate: float
    needed_rate: float = math.inf

    def stall(self, held: float) -> float:
        """The part of its time that the job waits for files, with so many bytes of them held."""
        rate = fetch_rate(minio_hits(held / self.size), self.cache_rate, self.storage_rate)
        if math.isinf(self.needed_rate):
            # How fast it could be is not known: what counts is how much of its fetching is left.
            return self.storage_rate / rate
        return max(0.0, 1 - rate / self.needed_rate)

    @property
    def enough(self) -> float:
        """The bytes from which on more would bring nothing."""
        if self.cache_rate <= self.storage_rate:
            return 0.0
        share = cache_for(self.needed_rate, self.cache_rate, self.storage_rate)
        return float(self.size) if share is None else min(1.0, share) * self.size


def allocate(capacity: int, readings: Mapping[str, Reading]) -> dict[str, int]:
    """The quota of each data set; together at most the capacity.

    Raises:
        ValueError: a size or rate that is not above 0, by name.
    """
    for name, one in readings.items():
        for field in ("size", "cache_rate", "storage_rate", "needed_rate"):
            if not getattr(one, field) > 0:
                raise ValueError(f"{name}: {field}: {getattr(one, field)}; must be above 0")
    given = dict.fromkeys(readings, 0.0)
    left, portion = float(capacity), capacity / PORTIONS
    while left > 0:
        best = max(
            (name for name, one in readings.items() if given[name] < one.enough),
            key=lambda name: (_gain(readings[name], given[name], min(portion, left)), name),
            default=None,
        )
        if best is None:
            break
        part = min(portion, left, readings[best].enough - given[best])
        given[best] += part
        left -= max(part, capacity * 1e-12)
    return {name: int(held) for name, held in given.items()}


def _gain(reading: Reading, held: float, portion: float) -> float:
    """What the next bytes take off its stall, for each of them."""
    part = min(portion, reading.enough - held)
    return (reading.stall(held) - reading.stall(held + part)) / part
