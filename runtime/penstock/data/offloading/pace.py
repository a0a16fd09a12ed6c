"""Whether a loader's steps are faster with its calls moved than they were before: by epochs.

Moving a call must never be slower. An epoch's pace is that of its steps after the first ones; those
of epochs before anything moved are what the others are held against, and
`penstock.data.partition.worth` says what is given up, and when.
"""

from __future__ import annotations

from typing import Final

from penstock.data.partition.worth import NONE, Choice, Means, Way, decide

SKIPPED: Final = 20
"""Steps at an epoch's beginning, in which processes start and calls are compared."""
LEAST: Final = 100
"""Steps of an epoch that says anything."""
_MOVED: Final = "moved"


class Pace:
    """Of one loader; told when the program gets a batch."""

    def __init__(self) -> None:
        self._choice = Choice(way=_MOVED, better=_MOVED)
        self._alone: float | None = None
        self._moved = False
        self._steps = 0
        self._first = self._last = 0.0

    def step(self, now: float) -> None:
        """The program gets a batch, at this time in seconds."""
        self._steps += 1
        if self._steps == SKIPPED:
            self._first = now
        self._last = now

    def begin_epoch(self, *, moved: bool) -> str:
        """The last epoch is over; why nothing is to move in the next one, or ""."""
        why = self._judge()
        self._moved, self._steps = moved, 0
        return why

    def _judge(self) -> str:
        if self._steps < SKIPPED + LEAST:
            return ""
        seconds = (self._last - self._first) / (self._steps - SKIPPED)
        if not self._moved:
            self._alone = seconds if self._alone is None else min(seconds, self._alone)
            return ""
        if self._alone is None:
            return ""
        ways = [Way(NONE, self._alone), Way(_MOVED, seconds)]
        self._choice = decide(self._choice, ways, Means((), ()))
        return self._choice.why if self._choice.way == NONE else ""
