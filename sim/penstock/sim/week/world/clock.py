"""Simulated time: what happens next, in order, and in the order of asking where times are equal."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count


class Clock:
    """The present time in seconds, and what is still to happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` at that time; at once, after what is due now, where that has passed."""
        heapq.heappush(self._due, (max(when, self.now), next(self._numbers), act))

    def run(
        self,
        until: float,
        going: Callable[[], bool],
        passed: Callable[[int], None] | None = None,
        every: float = math.inf,
    ) -> None:
        """Let time pass until nothing is due, `going` says no, or `until` is reached.

        `passed` is told how often `every` seconds have passed, whenever they have; nothing it does
        may change what happens.
        """
        due = every
        while self._due and self._due[0][0] <= until and going():
            self.now, _, act = heapq.heappop(self._due)
            if self.now >= due:
                times = int(self.now // every)
                due = (times + 1) * every
                if passed is not None:
                    passed(times)
            act()
