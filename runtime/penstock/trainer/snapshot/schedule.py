"""Which states of a training are kept: every n-th, and one that found no place when there is one.

A copy that is being written to disk keeps its memory until it is there. Where the pod has memory
for no other, a copy of the next state would go into fresh memory, which holds the training up many
times as long as a copy does and may not be there at all. So such a state is not copied: it stays
due, and the first step that finds the place free again is kept in its stead, which is newer. The
trained model never waits.

Pure: who asks knows whether there is a place.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum


class Due(IntEnum):
    """What is to be done with the state after a step; the greater holds the lesser."""

    NOTHING = 0
    IN_MEMORY = 1
    ON_DISK = 2


class SaveSchedule:
    """Of one process."""

    def __init__(
        self, checkpoint_every: int | None, snapshot_every: int | None, *, may_wait: bool = True
    ) -> None:
        """Steps between two checkpoints, and between two states that are kept in memory alone.

        None: none are kept so. At least 1.

        ``may_wait``: False where other processes keep their parts of the same steps.
        """
        self._checkpoint_every = checkpoint_every
        self._snapshot_every = snapshot_every
        self._may_wait = may_wait
        self._due = Due.NOTHING

    def after(self, steps: int, *, complete: bool, has_place: Callable[[], bool]) -> Due:
        """What to do now; what it says is taken to be done.

        Args:
            steps: that the model has seen.
            complete: it is trained.
            has_place: whether a copy has a place now; asked only where something is due.
        """
        if complete:
            self._due = Due.NOTHING
            return Due.ON_DISK
        if _divides(self._checkpoint_every, steps):
            self._due = Due.ON_DISK
        elif _divides(self._snapshot_every, steps):
            self._due = max(self._due, Due.IN_MEMORY)
        if self._due and self._may_wait and not has_place():
            return Due.NOTHING
        due, self._due = self._due, Due.NOTHING
        return due

    def forget(self) -> None:
        """Owe nothing: somebody else keeps the states from now on."""
        self._due = Due.NOTHING


def _divides(every: int | None, steps: int) -> bool:
    return every is not None and steps % every == 0
