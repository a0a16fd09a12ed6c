"""What programs say of the files that they read, as sums, and the `Reading` that follows: pure.

A program counts bytes and seconds, of memory and of storage, and how long it was there for them.
From these follow the rates of memory and storage, and how fast it would be if it never waited. In a
process that only prepares files ahead of a training, time in which it neither computes nor fetches
says that the training has enough: fetching may take that longer before anybody waits for it.

Sums fade, so that what a job does now counts more than what it did an hour ago.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.data.cache.allocate import Reading

HALF_SECONDS: Final = 600.0
"""After so long something counts half."""
MEMORY_RATE: Final = 2e9
"""Bytes a second from memory, until a hit was timed."""
LEAST_SECONDS: Final = 1.0
"""Of a program's time, before it is known well enough."""
SLACK_SHARE: Final = 0.15
"""Of a process' time; with less it may be that it waits for something else now and then."""
MOST_JOBS: Final = 256
GONE_SHARE: Final = 0.001
"""A job that was there for less of the time is forgotten."""
_MICRO: Final = 1e-6

TIMED: Final = frozenset(
    {"memory_bytes", "memory_us", "storage_bytes", "storage_us", "elapsed_us", "slack_us"}
)
"""What a program says, in bytes and microseconds."""


@dataclass(slots=True)
class Observed:
    """Sums of one data set, in bytes and seconds."""

    since: float
    memory_bytes: float = 0.0
    memory_seconds: float = 0.0
    storage_bytes: float = 0.0
    storage_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    slack_seconds: float = 0.0
    span_seconds: float = 0.0
    jobs: dict[str, float] = field(default_factory=dict)  # how long each has been there

    def add(self, job: str, said: Mapping[str, int]) -> None:
        """What a program says that it counted; see `TIMED`."""
        elapsed = said.get("elapsed_us", 0) * _MICRO
        self.memory_bytes += said.get("memory_bytes", 0)
        self.memory_seconds += said.get("memory_us", 0) * _MICRO
        self.storage_bytes += said.get("storage_bytes", 0)
        self.storage_seconds += said.get("storage_us", 0) * _MICRO
        self.elapsed_seconds += elapsed
        self.slack_seconds += said.get("slack_us", 0) * _MICRO
        if job in self.jobs or len(self.jobs) < MOST_JOBS:
            self.jobs[job] = self.jobs.get(job, 0.0) + elapsed

    def fade(self, now: float) -> None:
        """Time has passed."""
        passed = max(0.0, now - self.since)
        kept = 0.5 ** (passed / HALF_SECONDS)
        self.since = now
        self.span_seconds += passed
        for name in ("memory", "storage"):
            for unit in ("bytes", "seconds"):
                setattr(self, f"{name}_{unit}", kept * getattr(self, f"{name}_{unit}"))
        self.elapsed_seconds *= kept
        self.slack_seconds *= kept
        self.span_seconds *= kept
        least = GONE_SHARE * self.span_seconds
        self.jobs = {job: kept * there for job, there in self.jobs.items() if there * kept > least}

    def reading(self, size: int) -> Reading | None:
        """What follows for a data set of so many bytes; None: too little is known of it."""
        total = self.memory_bytes + self.storage_bytes
        if size < 1 or not self.storage_bytes or not self.storage_seconds:
            return None
        if self.elapsed_seconds < LEAST_SECONDS or not self.jobs or not self.span_seconds:
            return None
        timed = self.memory_bytes and self.memory_seconds
        cache_rate = self.memory_bytes / self.memory_seconds if timed else MEMORY_RATE
        storage_rate = self.storage_bytes / self.storage_seconds
        fetching = self.memory_seconds + self.storage_seconds
        elapsed = max(self.elapsed_seconds, fetching)
        slack = min(self.slack_seconds, elapsed - fetching)
        jobs = sum(min(1.0, there / self.span_seconds) for there in self.jobs.values())
        if slack > SLACK_SHARE * elapsed:
            needed = total / (fetching + slack)
            return Reading(size, cache_rate, storage_rate, total / elapsed, needed, jobs)
        work = total / (elapsed - fetching + total / cache_rate)
        return Reading(size, cache_rate, storage_rate, work, jobs=jobs)
