"""What a job has, or might have: the axes of every what-if."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from penstock.throughput.errors import ProfileError

CachePolicy = Literal["measured", "lru", "minio"]
"""How a cache that does not hold everything is used; see `cache_hits`."""


_POSITIVE: Final = (
    "cores",
    "prefetch",
    "data_worker_cores",
    "data_worker_speed",
    "network_bytes_per_second",
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
        for field in _POSITIVE:
            if not getattr(self, field) > 0:
                raise ProfileError(f"{field}: {getattr(self, field)} must be more than 0")
        for field in ("workers", "data_workers"):
            if getattr(self, field) < 0:
                raise ProfileError(f"{field}: {getattr(self, field)} must be 0 or more")
        if self.cache_bytes is not None and self.cache_bytes < 0:
            raise ProfileError(f"cache_bytes: {self.cache_bytes} must be 0 or more")
        reading = self.data_worker_reading_seconds
        if reading is not None and not 0 <= reading < float("inf"):
            raise ProfileError(f"data_worker_reading_seconds: {reading} must be 0 or more")
        speed = self.storage_bytes_per_second
        if speed is not None and speed <= 0:
            raise ProfileError(f"storage_bytes_per_second: {speed} must be more than 0")
