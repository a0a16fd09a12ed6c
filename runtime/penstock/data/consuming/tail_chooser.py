"""Whether the ends of a loader's samples go to its local workers: what one program spends on them.

Counts, and leaves the decision to `penstock.throughput.decision.tail_choice`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.throughput.decision.tail_choice import TailChoice, TailWindow, watch_tail

logger = logging.getLogger(__name__)

MOST_PAUSE_SECONDS: Final = 30.0
"""Between two batches; a window with a longer one says nothing."""


class TailChooser:
    """See the module's docstring; of one loader, from epoch to epoch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: of seconds."""
        self._clock = clock
        self._choice = TailChoice()
        self.begin()

    @property
    def in_workers(self) -> bool:
        """Whether local workers are to make them."""
        return self._choice.in_workers

    def begin(self) -> None:
        """An epoch or another cut begins: what was before is of no window."""
        self._since, self._last = 0.0, 0.0
        self._taken, self._seconds = 0, 0.0

    @contextmanager
    def spent(self) -> Iterator[None]:
        """The program makes the ends of a batch."""
        began = self._clock()
        try:
            yield
        finally:
            self._seconds += self._clock() - began

    def look(self, workers: int) -> None:
        """The program is about to take a batch, and has so many local workers."""
        now = self._clock()
        if not self._since or now - self._last > MOST_PAUSE_SECONDS:
            self.begin()
            self._since = self._last = now
            return
        self._taken, self._last = self._taken + 1, now
        window = TailWindow(now - self._since, self._taken, self._seconds, workers)
        if not window.counts:
            return
        self.begin()
        self._since = self._last = now
        self._choice = watch_tail(self._choice, window)
        if self._choice.why:
            logger.info("data workers: %s", self._choice.why)
