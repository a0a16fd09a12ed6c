"""What making batches costs: time on a core, time without one, time blocked, bytes from storage.

Whoever makes a batch measures it and says so with the batch; the training process adds it up, and
its reports carry the sums. The two differences that matter are told apart so: a maker that waits
for a core would be helped by cores elsewhere, one that waits for storage would not.
"""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.data.clocks import BytesRead, Moment, ThreadClock

QUICK_SECONDS: Final = 0.0005
"""Batches that take less are measured now and then only; such a one is taken to be all CPU."""
MEASURED: Final = 16
"""Of quick batches one in so many."""
READ_SECONDS: Final = 0.02
"""Bytes from storage are counted no more often: it costs as much as a quick batch."""


class Cost(NamedTuple):
    """Of one batch, in seconds: of the clock, on a core, in the run queue; and bytes."""

    seconds: float
    cpu: float
    queued: float
    storage_bytes: int

    @classmethod
    def read(cls, values: Any) -> Cost:
        """What a maker says.

        Raises:
            ValueError, TypeError: it is no cost.
        """
        seconds, cpu, queued, storage_bytes = values
        found = cls(float(seconds), float(cpu), float(queued), max(0, int(storage_bytes)))
        if not all(math.isfinite(one) and one >= 0 for one in found):
            raise ValueError(f"a batch cannot have cost {found}")
        return found


@dataclass(slots=True)
class Making:
    """What the makers of one place have done since the program began."""

    batches: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    queued_seconds: float = 0.0
    storage_bytes: int = 0

    def add(self, cost: Cost) -> None:
        """A batch was made."""
        self.batches += 1
        self.seconds += cost.seconds
        self.cpu_seconds += cost.cpu
        self.queued_seconds += cost.queued
        self.storage_bytes += cost.storage_bytes


class MakingClock:
    """Measures batches in whichever thread makes them; opens its files when the first is begun."""

    def __init__(self) -> None:
        self._clock: ThreadClock | None = None
        self._bytes: BytesRead | None = None
        self._owner = (0, 0)  # process and thread whose files are open
        self._read_at = float("-inf")
        self._storage = 0
        self._quick = 0
        self._began = 0.0
        self._before: Moment | None = None

    def note_long(self) -> None:
        """The next batch is measured, whatever the last one took."""
        self._quick = 0

    def begin(self) -> None:
        """A batch is begun."""
        self._before = None
        if self._quick % MEASURED == 0:
            owner = (os.getpid(), threading.get_ident())
            if self._clock is None or owner != self._owner:
                self._open(owner)
            assert self._clock is not None, "it was opened"
            self._before = self._clock.read()
        self._began = time.perf_counter()

    def end(self) -> Cost:
        """It is made."""
        seconds = time.perf_counter() - self._began
        self._quick = self._quick + 1 if seconds < QUICK_SECONDS else 0
        before, clock, counter = self._before, self._clock, self._bytes
        if before is None or clock is None or counter is None:
            return Cost(seconds, seconds, 0.0, 0)
        after = clock.read()
        storage = 0
        if after.wall - self._read_at >= READ_SECONDS:
            self._read_at = after.wall
            seen = counter.read()[1]
            storage, self._storage = max(0, seen - self._storage), seen
        cpu = min(seconds, max(0.0, after.cpu - before.cpu))
        queued = min(seconds - cpu, max(0.0, after.queued - before.queued))
        return Cost(seconds, cpu, queued, storage)

    def close(self) -> None:
        """Give its files back."""
        if self._clock is not None and self._bytes is not None:
            self._clock.close()
            self._bytes.close()
        self._clock = self._bytes = None

    def _open(self, owner: tuple[int, int]) -> None:
        self.close()
        self._owner = owner
        self._clock, self._bytes = ThreadClock(), BytesRead()
        self._storage = self._bytes.read()[1]
