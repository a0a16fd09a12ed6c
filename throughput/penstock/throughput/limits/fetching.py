"""What reading costs with another cache or another storage than the profile was taken with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.throughput.limits.cache_hits import lru_hits, minio_hits
from penstock.throughput.limits.cut import Cut
from penstock.throughput.profiles.profile import Profile, Storage
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost


def hits_with(storage: Storage, resources: Resources) -> float:
    """Share of the bytes that comes from memory."""
    if resources.cache_bytes is None or not storage.total_bytes:
        return storage.hits
    share = resources.cache_bytes / storage.total_bytes
    return lru_hits(share) if resources.cache_policy == "lru" else minio_hits(share)


def with_cache(profile: Profile, resources: Resources) -> tuple[StageCost, ...]:
    """The stages as they are with that cache and storage.

    Reading blocks more, or less; and what is not in memory costs a core something, too.
    """
    storage = profile.storage
    if storage is None:
        return profile.stages
    misses = 1 - hits_with(storage, resources)
    extra = misses * _cold_seconds(storage, resources) - (1 - storage.hits) * storage.cold_seconds
    dearer = (misses - (1 - storage.hits)) * storage.cold_cpu_seconds
    reading = next(
        (i for i, stage in enumerate(profile.stages) if stage.kind in ("fetch", "opaque")), None
    )
    if reading is None or not (extra or dearer):
        return profile.stages
    stages = list(profile.stages)
    stages[reading] = replace(
        stages[reading],
        cpu_seconds=max(0.0, stages[reading].cpu_seconds + dearer),
        blocked_seconds=max(0.0, stages[reading].blocked_seconds + extra),
    )
    return tuple(stages)


def read_by(stages: Sequence[StageCost], cut: Cut, resources: Resources) -> Sequence[StageCost]:
    """The stages with what reading costs who reads where a sample is cut so."""
    reading = resources.data_worker_reading_seconds
    if reading is None or cut.first or not cut.moves or stages[0].kind != "fetch":
        return stages
    return (replace(stages[0], blocked_seconds=reading), *stages[1:])


def reading_apart(profile: Profile) -> Profile:
    """The profile with reading as a stage of its own, where it is known how much is read.

    What a dataset does on a core is not divided: taking bytes out of memory is the least of it, and
    what it costs to send them elsewhere is counted where they are sent (`Transport`).
    """
    storage, first = profile.storage, profile.stages[0]
    if storage is None or not storage.bytes_per_sample or first.kind != "opaque":
        return profile
    if storage.hits == 0 and not storage.total_bytes:
        return profile  # of a running job: what is read from memory is not counted
    reading = StageCost(
        "reading", "fetch", 0.0, first.blocked_seconds, bytes_out=storage.bytes_per_sample
    )
    rest = replace(first, kind="transform", blocked_seconds=0.0)
    return replace(profile, stages=(reading, rest, *profile.stages[1:]))


def _cold_seconds(storage: Storage, resources: Resources) -> float:
    """Of one sample. With a faster storage its bytes take less time, and the latency stays.

    A slower one is taken to be a volume with a lower limit: below it, reading is as fast as it was,
    and at it `storage_rate` binds.
    """
    before, now = storage.cold_bytes_per_second, resources.storage_bytes_per_second
    if not before or not now or now <= before:
        return storage.cold_seconds
    transfer = min(storage.cold_seconds, storage.bytes_per_sample / before)
    return storage.cold_seconds - transfer * (1 - before / now)


def storage_rate(profile: Profile, resources: Resources) -> float | None:
    """Samples a second that the storage can deliver; None where it does not matter."""
    storage = profile.storage
    if storage is None or not storage.bytes_per_sample:
        return None
    speed = resources.storage_bytes_per_second or storage.cold_bytes_per_second
    misses = 1 - hits_with(storage, resources)
    if not speed or misses <= 0:
        return None
    return speed / (misses * storage.bytes_per_sample)
