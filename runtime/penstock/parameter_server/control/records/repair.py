"""Slots that only some of the servers have, since a worker ended between two of them.

They are leased again, and the servers that have them drop them; until that is done the training
goes on, and nothing else is begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.parameter_server.control.records.timeouts import Timeouts

MAX_ATTEMPTS: Final = 3
"""After so many in a row the checkpoint is used instead."""


@dataclass
class PartialSlotRepair:
    """The completing of what is half done."""

    timeouts: Timeouts
    attempts: int = 0  # since the servers last agreed
    _frontier: int | None = None  # slots below it are to be complete
    _until: float = 0.0

    @property
    def under_way(self) -> bool:
        """Whether the training goes on for this alone."""
        return self._frontier is not None

    @property
    def is_hopeless(self) -> bool:
        """Whether it has been tried often enough."""
        return self.attempts >= MAX_ATTEMPTS

    def begin(self, frontier: int, now: float) -> None:
        """Complete everything below a slot."""
        self._frontier, self._until = frontier, now + self.timeouts.repair

    def goes_on(self, watermark: int, now: float) -> bool:
        """Whether it takes longer yet; where it takes too long, servers are compared again."""
        return self._frontier is not None and watermark < self._frontier and now < self._until

    def pause(self) -> None:
        """The training goes on for everything again: servers have yet to be compared."""
        self._frontier = None

    def end(self) -> None:
        """All servers have the same, or nothing of it is left."""
        self.attempts, self._frontier = 0, None
