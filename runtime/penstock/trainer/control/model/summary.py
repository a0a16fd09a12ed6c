"""The figures of a job: what its trainer shows to people and tells the Brain."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from penstock.job.protocol import DataSpec


@dataclass(frozen=True)
class Summary:
    """The figures of a job, for people and for the Brain."""

    data: DataSpec | None
    total_steps: int
    committed_steps: int
    epoch: int
    world_size: int
    training: bool
    group: int
    samples_seen: int
    samples_lost: int
    samples_repeated: int
    epochs_audited: int
    quarantined: list[tuple[int, int]]
    stragglers: dict[int, float]  # rank: its time for a slot as a multiple of the median
    result: dict[str, Any] | None
    message: str
    alone: list[int] = field(default_factory=list)  # workers that train without the others
    servers: dict[str, Any] | None = (
        None  # of a job with parameter servers; see `ServerCoordinator.summary`
    )


@dataclass
class Progress:
    """Committed steps over time, from which speeds are computed."""

    points: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=4096))

    def note(self, now: float, committed: int) -> None:
        """The group has committed this many steps; after a rollback the past is dropped."""
        if self.points and committed < self.points[-1][1]:
            self.points.clear()
        self.points.append((now, committed))

    def steps_per_second(self, now: float, window_seconds: float) -> float:
        """Mean speed over the last ``window_seconds``."""
        recent = [point for point in self.points if point[0] >= now - window_seconds]
        if len(recent) < 2:
            return 0.0
        span = recent[-1][0] - recent[0][0]
        return (recent[-1][1] - recent[0][1]) / span if span > 0 else 0.0
