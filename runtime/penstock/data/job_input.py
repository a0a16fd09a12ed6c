"""What the training processes say of their input, as a profile of the job for the Brain.

They report sums since they came up; here differences are taken over the last half minute or so, in
which nobody came or left: who was there decides what a batch costs and how fast batches come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.data.protocol import ConsumerReport, InputTotals, MakingTotals
from penstock.throughput.errors import ProfileError
from penstock.throughput.observations.running_job import Interval, Making, profile_of
from penstock.throughput.profiles.profile import Profile

WINDOW_SECONDS: Final = 30.0
LEAST_SECONDS: Final = 5.0
SKIPPED_SECONDS: Final = 2.0
"""After somebody has come, batches are under way that were made without it."""

_Configuration = tuple[tuple[tuple[str, int], ...], int]


@dataclass
class JobInput:
    """Remembers the reports of one job's training processes."""

    program: str = "the job"
    _seen: deque[tuple[float, Mapping[str, InputTotals]]] = field(default_factory=deque)
    _configuration: _Configuration | None = None
    _since: float = 0.0

    def note(self, reports: Sequence[ConsumerReport], data_workers: int, now: float) -> None:
        """The training processes that report at present, and the data workers that are there."""
        totals = {one.name: one.input for one in reports if one.input is not None}
        there = (
            tuple(sorted((name, one.local_workers) for name, one in totals.items())),
            data_workers,
        )
        if there != self._configuration:
            self._configuration, self._since = there, now
            self._seen.clear()
        if not totals or now - self._since < SKIPPED_SECONDS:
            return
        self._seen.append((now, totals))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_SECONDS:
            self._seen.popleft()

    def profile(self, data_worker_cores: float) -> Profile | None:
        """Of the seconds that are remembered; None where they say too little."""
        if self._configuration is None or len(self._seen) < 2:
            return None
        (begin, before), (end, after) = self._seen[0], self._seen[-1]
        if end - begin < LEAST_SECONDS:
            return None
        data_workers = self._configuration[1]
        intervals = [
            _between(before[name], last, data_workers, data_worker_cores)
            for name, last in after.items()
            if name in before
        ]
        try:
            return profile_of(self.program, [one for one in intervals if one is not None])
        except ProfileError:
            return None  # figures that no program can have: the next ones may be sound


def _between(
    before: InputTotals, after: InputTotals, data_workers: int, data_worker_cores: float
) -> Interval | None:
    seconds = after.seconds - before.seconds
    if seconds <= 0 or after.taken < before.taken:
        return None
    return Interval(
        seconds=seconds,
        taken=after.taken - before.taken,
        waited_seconds=min(seconds, max(0.0, after.waited_seconds - before.waited_seconds)),
        cpu_seconds=max(0.0, after.cpu_seconds - before.cpu_seconds),
        received_bytes=max(0, after.received_bytes - before.received_bytes),
        batch_bytes=after.batch_bytes,
        cores=after.cores,
        workers=after.local_workers,
        data_workers=data_workers,
        data_worker_cores=data_worker_cores,
        in_line=_made(before.in_line, after.in_line),
        local=_made(before.local, after.local),
        remote=_made(before.remote, after.remote),
        cut=after.cut,
    )


def _made(before: MakingTotals, after: MakingTotals) -> Making:
    return Making(
        max(0, after.batches - before.batches),
        max(0.0, after.seconds - before.seconds),
        max(0.0, after.cpu_seconds - before.cpu_seconds),
        max(0.0, after.queued_seconds - before.queued_seconds),
        max(0, after.storage_bytes - before.storage_bytes),
    )
