"""Withholding delivery of a PyTorch loader's batches, and new work from its workers.

Only what goes to the workers is kept back, for some steps: samplers are asked when they would be,
and batches come in the order in which they would come.
"""

from __future__ import annotations

import time
import weakref
from typing import Any, Final

FILL_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.002
SETTLE_SECONDS: Final = 0.05
"""A batch counts as ready when its worker begins to hand it over, which may take a moment."""


class _HeldQueue:
    """A worker's queue whose work is kept until it is released."""

    def __init__(self, queue: Any, held: HeldWindow) -> None:
        self._queue = queue
        self._held = held

    def put(self, item: Any) -> None:
        """An index is kept; whatever else a loader says to its workers is not for later."""
        if type(item) is tuple:
            self._held.keep(self._queue, item)
        else:
            self._held.release()
            self._queue.put(item)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class HeldWindow:
    """The window of one iterator over a loader with workers."""

    def __init__(self, iterator: Any) -> None:
        self._refers = weakref.ref(iterator)  # which ends its workers when it is forgotten
        self._plain: Any = None
        self._kept: list[tuple[Any, Any]] = []

    @property
    def _iterator(self) -> Any:
        return self._refers()

    @staticmethod
    def possible(iterator: Any) -> bool:
        """Whether the iterator is as this module knows it."""
        names = ("_index_queues", "_worker_result_queue", "_data_queue", "_tasks_outstanding")
        return all(hasattr(iterator, name) for name in names)

    def fill(self) -> int | None:
        """Wait until every batch that is under way is ready; says how many there are.

        None: they were not within `FILL_SECONDS`.
        """
        deadline = time.monotonic() + FILL_SECONDS
        while time.monotonic() < deadline:
            if self._arrived() >= self._iterator._tasks_outstanding:
                time.sleep(SETTLE_SECONDS)
                return int(self._iterator._tasks_outstanding) + self._out_of_order()
            time.sleep(POLL_SECONDS)
        return None

    def defer(self) -> None:
        """From now on workers get no new work."""
        if self._plain is None:
            self._plain = self._iterator._index_queues
            self._iterator._index_queues = [_HeldQueue(queue, self) for queue in self._plain]

    def release(self) -> None:
        """Workers get what was kept, in its order, and all that comes."""
        if self._plain is not None:
            if (iterator := self._iterator) is not None:
                iterator._index_queues = self._plain
            self._plain = None
        kept, self._kept = self._kept, []
        for queue, item in kept:
            queue.put(item)

    def keep(self, queue: Any, item: Any) -> None:
        """For later."""
        self._kept.append((queue, item))

    def _arrived(self) -> int:
        iterator = self._iterator
        found = int(iterator._data_queue.qsize())
        if iterator._data_queue is not iterator._worker_result_queue:  # a thread pins memory
            found += int(iterator._worker_result_queue.qsize())
        return found

    def _out_of_order(self) -> int:
        return sum(len(info) == 2 for info in self._iterator._task_info.values())
