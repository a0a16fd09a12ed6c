"""One epoch's batches between the program that takes them and the data workers that bring them.

The queue of a stream is its reorder buffer and what data workers have to be told to fill it. All
queues of a process are guarded by one lock, that of the `WorkerPool` that opened them: a data
worker that comes or goes concerns all of them. The program's side takes the lock itself; the pool's
side (`window`, `note_size`) is called with the lock held.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.data.pipeline import PackedPipeline
from penstock.data.queue.reorder_buffer import Failure, Need, ReorderBuffer

BUDGET_BYTES: Final = 1 << 30
WAIT_SECONDS: Final = 1.0


class Counts:
    """What went through the queues of a process, for the reports."""

    def __init__(self) -> None:
        self.arrived = self.taken = self.made_here = self.duplicates = 0
        self.lost = self.left_out = self.received_bytes = 0
        self.newest_left_out: deque[str] = deque(maxlen=8)
        self.waited_seconds = 0.0

    def add_made_here(self, seconds: float) -> None:
        """The program has made a step itself, or found it to have only bad samples."""
        self.waited_seconds += seconds
        self.made_here += 1

    def add_left_out(self, text: str) -> None:
        """A sample was left out."""
        self.left_out += 1
        self.newest_left_out.append(text[:1000])


class BatchQueue:
    """See the module's docstring.

    Attributes:
        number: what data workers call the stream.
        packed: how its batches are made, as data workers are sent it.
        seed: of its epoch.
        window: its steps; only with the lock, but for what the program alone changes (`feed`).
        batch_bytes: of the largest batch so far.
    """

    def __init__(
        self,
        lock: threading.Condition,
        counts: Counts,
        number: int,
        packed: PackedPipeline,
        seed: int,
        window: ReorderBuffer,
    ) -> None:
        self.number = number
        self.packed = packed
        self.seed = seed
        self.window = window
        self.batch_bytes = 0
        self._most_ahead = window.ahead
        self._lock = lock
        self._counts = counts

    def take(self, drop_overdue: Callable[[], None]) -> tuple[Need | None, Any]:
        """As `ReorderBuffer.take`, after waiting for the batch as long as that helps.

        Args:
            drop_overdue: called now and then while it waits, with the lock held.

        Raises:
            BadSampleError: three data workers died while they made this step.
        """
        began = time.perf_counter()
        window, counts = self.window, self._counts
        with self._lock:
            while True:
                lost = window.lost
                need, batch = window.take()
                counts.lost += window.lost - lost
                if need is not Need.WAIT:
                    break
                self._lock.wait(WAIT_SECONDS)
                drop_overdue()
            if need is None:
                counts.taken += 1
            counts.waited_seconds += time.perf_counter() - began
        return need, batch

    def make_here(self) -> tuple[Any, list[Failure]]:
        """As `ReorderBuffer.make_here`."""
        with self._lock:
            return self.window.make_here(time.monotonic())

    def made_here(self) -> None:
        """As `ReorderBuffer.made_here`."""
        with self._lock:
            self.window.made_here()

    def note_size(self, size: int) -> None:
        """A batch of so many bytes has come: bound what is asked for ahead."""
        if size > self.batch_bytes:
            self.batch_bytes = size
            self.window.ahead = max(2, min(self._most_ahead, BUDGET_BYTES // size))
