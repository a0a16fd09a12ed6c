"""What a job has, or might have: the axes of every what-if."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.figures import (
    LEAST,
    MOST_BYTES,
    MOST_CORES,
    MOST_RATE,
    MOST_SECONDS,
    hold_number,
    hold_whole,
    shown,
)

CachePolicy = Literal["measured", "lru", "minio"]
"""How a cache that does not hold everything is used; see `cache_hits`."""


MOST_WORKERS: Final = 4096
"""Processes that make batches: more are not simulated."""
MOST_PREFETCH: Final = 10**6
_POSITIVE: Final = (
    ("cores", MOST_CORES),
    ("data_worker_cores", MOST_CORES),
    ("data_worker_speed", MOST_CORES),
    ("network_bytes_per_second", MOST_RATE),
)
_WHOLE: Final = (
    ("workers", 0, MOST_WORKERS),
    ("data_workers", 0, MOST_WORKERS),
    ("prefetch", 1, MOST_PREFETCH),
)


@dataclass(frozen=True, slots=True)
class Resources:
    """One configuration.

    Attributes:
        cores: that the training pod may use, as quota and affinity say; need not be whole.
        workers: processes of the loader; 0: the training process makes its batches itself.
        prefetch: batches ahead of each worker.
        cache_bytes: of memory for the files that are read; None: as when the profile was taken.
        cache_policy: what is in a cache that is too small.
        storage_bytes_per_second: of what is read from storage; None: as measured.
        data_workers: processes elsewhere in the cluster.
        data_worker_cores: of each.
        data_worker_speed: of one of these cores, beside one of the training pod's.
        network_bytes_per_second: between them and the training pod.
        data_worker_reading_seconds: blocked time of a sample that data workers read by themselves;
            None: as much as in the training pod.
    """

    cores: float
    workers: int
    prefetch: int = 2
    cache_bytes: float | None = None
    cache_policy: CachePolicy = "minio"
    storage_bytes_per_second: float | None = None
    data_workers: int = 0
    data_worker_cores: float = 1.0
    data_worker_speed: float = 1.0
    network_bytes_per_second: float = 1.25e9
    data_worker_reading_seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse what nobody can have."""
        for field, most in _POSITIVE:
            hold_number(field, getattr(self, field), LEAST, most)
        for field, least, whole in _WHOLE:
            hold_whole(field, getattr(self, field), least, whole)
        if self.cache_bytes is not None:
            hold_number("cache_bytes", self.cache_bytes, 0, MOST_BYTES)
        if (reading := self.data_worker_reading_seconds) is not None:
            hold_number("data_worker_reading_seconds", reading, 0, MOST_SECONDS)
        if (speed := self.storage_bytes_per_second) is not None:
            hold_number("storage_bytes_per_second", speed, LEAST, MOST_RATE)
        if self.cache_policy not in get_args(CachePolicy):
            names = ", ".join(get_args(CachePolicy))
            raise ProfileError(f"cache_policy: {shown(self.cache_policy)} must be one of {names}")
