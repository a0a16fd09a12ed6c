"""What the first process of a replica group knows of the last checkpoint under the others: pure.

A trained model is on disk when every process has written its part. After the last step no step
carries what a process cannot write, so each says it by words of its own: at once and when it
changes, and when it waits no longer. Until then the replica group is not through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

WORD: Final = "last save"
"""The key of such a word, beside which others have none."""


def waiting(unwritten: Mapping[str, str]) -> dict[str, Any]:
    """The word of a process that waits for its part; ``unwritten``: by reason."""
    return {WORD: True, "unwritten": dict(unwritten)}


def through(failure: str) -> dict[str, Any]:
    """The word of a process that waits no longer; ``failure``: why its part is not there."""
    return {WORD: True, "through": True, "failure": failure}


class LastSave:
    """The parts of the other processes, by their numbers from 1 on."""

    def __init__(self, processes: int, unwritten: Mapping[str, str]) -> None:
        """``processes``: of the replica group; ``unwritten``: by some other, with the last step."""
        self._before = unwritten
        self._said: dict[int, Mapping[str, str]] = {}
        self._waiting = set(range(1, processes))
        self.failure = ""
        """Why some part is not on disk and will not be."""

    def hear(self, process: int, word: Mapping[str, Any]) -> bool:
        """Take up what one said; False: it is no such word."""
        if WORD not in word:
            return False
        if word.get("through"):
            self._waiting.discard(process)
            self._said[process] = {}
            self.failure = self.failure or word["failure"]
        else:
            self._said[process] = word["unwritten"]
        return True

    def lacks(self, process: int) -> bool:
        """Whether this process has a part yet to be written."""
        return process in self._waiting

    @property
    def waits(self) -> bool:
        """Whether some process has."""
        return bool(self._waiting)

    @property
    def unwritten(self) -> dict[str, str]:
        """What some other process cannot write: reason, and what the first that has it says.

        Who has not spoken yet may be the one that could not with the last step.
        """
        found = {} if self._waiting.issubset(self._said) else dict(self._before)
        for process in sorted(self._said, reverse=True):
            found.update(self._said[process])
        return found
