"""A state that is written out of the training's own tensors, where there is no memory for a copy.

The training waits until they have been read, not until the disk has them. A disk that takes nothing
for a while gets no more of them: the state is *withdrawn*, the training goes on, and whoever writes
leaves no file. So what has a checkpoint's name was read as a whole before any of it changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import TypeVar

from penstock.job.storage import STALLED_SECONDS

_Part = TypeVar("_Part")


class Way(StrEnum):
    """What becomes of a state for which there is neither a place nor memory for a copy."""

    IN_PLACE = "in place"  # it is written while the training waits
    LEFT_OUT = "left out"


def way_without_copy(*, to_disk: bool, writing: bool, last: bool) -> Way:
    """What becomes of such a state.

    Args:
        to_disk: it is to be written; else it was for memory alone.
        writing: the one before it is still being written, for which nobody waits.
        last: it is that of the trained model, which does not change any more.
    """
    return Way.IN_PLACE if to_disk and (last or not writing) else Way.LEFT_OUT


class WithdrawnError(Exception):
    """The state changes from now on, and was not read to its end."""


class Lent:
    """Between who reads such a state and the training; each has a thread."""

    def __init__(self, *, stays: bool) -> None:
        """``stays``: the state does not change until it is withdrawn; it may be read again."""
        self.stays = stays
        self._changed = threading.Condition()
        self._pieces = 0
        self._returned = False  # it was read to its end
        self._withdrawn = False
        self._ended = False  # nobody reads it any more

    # ------------------------------------------------------------------ who reads

    def watched(self, parts: Iterable[_Part]) -> Iterator[_Part]:
        """The same parts, as long as the state is lent. Raises WithdrawnError: it is not."""
        for part in parts:
            with self._changed:
                self._check()
                self._pieces += 1
                self._changed.notify_all()
            yield part
        with self._changed:
            self._check()
            self._returned = True
            self._changed.notify_all()

    def end(self) -> None:
        """It is written, or it is not and will not be tried again."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _check(self) -> None:
        if self._withdrawn or (self._returned and not self.stays):
            raise WithdrawnError

    # ------------------------------------------------------------------ the training

    def withdraw(self) -> None:
        """The state is about to change."""
        with self._changed:
            self._withdrawn = True
            self._changed.notify_all()

    def wait(self, seconds: float, stalled_seconds: float = STALLED_SECONDS) -> bool:
        """Wait until the state may change; False: it was withdrawn for that.

        Args:
            seconds: the longest wait.
            stalled_seconds: the longest one in which nothing is read.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (self._returned or self._ended):
                before = self._pieces
                left = min(stalled_seconds, deadline - time.monotonic())
                moved = self._changed.wait_for(partial(self._moved, before), max(0.0, left))
                if not moved or time.monotonic() > deadline:
                    self._withdrawn = True
                    return False
            return True

    def _moved(self, before: int) -> bool:
        return self._returned or self._ended or self._pieces > before
