"""When a job's training will have seen all its steps, from the speed of its last minutes.

Stops count: the speed is that of steps over the clock, so that regrouping and waiting are in it.
What is told changes only when it is off by a tenth of the time that is left, so that a steady
training costs one write of its status and not one a minute.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Final

from penstock.base.fields import write_time
from penstock.base.steps_left import steps_left

WINDOW_SECONDS: Final = 600.0
SPACING_SECONDS: Final = 10.0
"""Between two looks that are kept: 60 at most are."""
LEAST_SECONDS: Final = 30.0
LEAST_STEPS: Final = 10
"""Nothing is told from less than this."""
TOLERANCE: Final = 0.1
LEAST_CHANGE_SECONDS: Final = 30.0


class CompletionEstimate:
    """The estimate of one job; asked now and then."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()  # when, and steps by then
        self._told: float | None = None

    def look(self, steps: int, total: int, now: float) -> float | None:
        """When the training ends, as seconds of the same clock; None: nothing can be said.

        Args:
            steps: that the model has seen.
            total: of the whole training; 0: not known.
            now: seconds since the epoch.
        """
        if total <= 0 or steps >= total:
            return self._told if steps else None
        if self._looks and (steps < self._looks[-1][1] or now < self._looks[-1][0]):
            self._looks.clear()  # the model went back to a checkpoint, or the clock was set
        while self._looks and now - self._looks[0][0] > WINDOW_SECONDS:
            self._looks.popleft()
        if not self._looks or now - self._looks[-1][0] >= SPACING_SECONDS:
            self._looks.append((now, steps))
        since, before = self._looks[0]
        if now - since < LEAST_SECONDS or steps - before < LEAST_STEPS:
            return self._told
        left = steps_left(steps, total) * (now - since) / (steps - before)
        off = max(LEAST_CHANGE_SECONDS, TOLERANCE * left)
        if self._told is None or abs(now + left - self._told) > off:
            self._told = now + left
        return self._told


def as_time(seconds: float | None) -> str | None:
    """The form of a status."""
    if seconds is None:
        return None
    return write_time(datetime.fromtimestamp(int(seconds), UTC))
