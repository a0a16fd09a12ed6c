"""How many bytes of a cache each data set gets: pure.

A job that fetches at ``F(x) = 1 / (x / C + (1 - x) / S)`` (DS-Analyzer, PVLDB 14(5), section 5.1)
needs no more cache once ``F(x) >= min(P, G)``, the rate at which it prepares and trains. Until then
each byte takes the same off the seconds that it waits for each second of its work, most where
storage is slow and the data set is read often. So the bytes go to one data set after the other, to
that first whose jobs each byte spares most (as SiloD, EuroSys 23, divides a cache): nobody can
divide them so that less is waited.

Room moves by reading files anew, so what is divided stays so until another division is worth it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.throughput.limits.cache_hits import cache_for, fetch_rate, minio_hits

WORTH_MOVING: Final = 0.1
"""The part of the waiting that another division has to spare."""
LEAST_WAITING: Final = 0.01
"""Seconds for each second of work; to spare less is worth nothing."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A data set, and who reads it.

    Attributes:
        size: bytes of the data set.
        cache_rate: bytes a second from memory (C).
        storage_rate: bytes a second from storage (S).
        work_rate: bytes a second that its jobs read where they wait for none (min(P, G)).
        needed_rate: bytes a second at which fetching is never waited for: ``work_rate`` where files
            are fetched ahead, infinite where they are fetched and prepared in turns.
        jobs: how many read it, those that do now and then in part.
    """

    size: int
    cache_rate: float
    storage_rate: float
    work_rate: float
    needed_rate: float = math.inf
    jobs: float = 1.0

    def waiting(self, held: float) -> float:
        """The seconds that its jobs wait for each second of work, with so many bytes held."""
        rate = fetch_rate(minio_hits(held / self.size), self.cache_rate, self.storage_rate)
        least = 1 / min(self.needed_rate, self.cache_rate)
        return self.jobs * self.work_rate * max(0.0, 1 / rate - least)

    @property
    def spared(self) -> float:
        """What each byte held takes off the waiting, up to `enough` of them."""
        saved = 1 / self.storage_rate - 1 / self.cache_rate
        return max(0.0, self.jobs * self.work_rate * saved / self.size)

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
        for field in ("size", "cache_rate", "storage_rate", "work_rate", "needed_rate", "jobs"):
            if not getattr(one, field) > 0:
                raise ValueError(f"{name}: {field}: {getattr(one, field)}; must be above 0")
    left, quotas = capacity, {}
    for name in sorted(readings, key=lambda each: (-readings[each].spared, each)):
        quotas[name] = min(left, math.ceil(readings[name].enough))
        left -= quotas[name]
    return quotas


def divide(
    capacity: int, readings: Mapping[str, Reading], before: Mapping[str, int]
) -> dict[str, int]:
    """The quotas from now on: those before, unless others spare enough of the waiting.

    Raises:
        ValueError: as `allocate`.
    """
    quotas = allocate(capacity, readings)
    if before.keys() - readings.keys():
        return quotas
    waiting = {
        which: sum(one.waiting(given.get(name, 0)) for name, one in readings.items())
        for which, given in (("before", before), ("now", quotas))
    }
    spared = waiting["before"] - waiting["now"]
    if spared > LEAST_WAITING and spared > WORTH_MOVING * waiting["before"]:
        return quotas
    return {name: before.get(name, 0) for name in readings}
