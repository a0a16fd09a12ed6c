"""What fails again and again is said once, and once more when it works again."""

from __future__ import annotations

import logging

from penstock.client import BrainError

logger = logging.getLogger(__name__)


class FailureLog:
    """The calls of one connection to the Brain that fail at present."""

    def __init__(self) -> None:
        self._failing: set[str] = set()

    def note_failure(self, call: str, error: Exception) -> None:
        """A call has failed; it is tried again."""
        if call not in self._failing:
            logger.warning("the Brain (%s): %s; trying on", call, _in_one_line(error))
            self._failing.add(call)

    def note_success(self, call: str) -> None:
        """A call has been answered."""
        if call in self._failing:
            logger.info("the Brain (%s) answers again", call)
            self._failing.discard(call)


def _in_one_line(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said if isinstance(error, BrainError) else f"{type(error).__name__}: {said}"
