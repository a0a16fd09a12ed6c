"""What copies from host to device cost a training: which of them hold up its thread, and how long.

A blocking copy does, until its bytes are there. One that does not block, from pinned memory, is
only begun: the device reads the memory by itself, beside the training. One that does not block,
from memory that is not pinned, holds the thread up all the same, since somebody has to carry the
bytes into pinned memory first; and it does so in its turn, after what the device was given before,
which is no cost of the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

HOST_TO_DEVICE: Final = "host-to-device copy"
"""The training's thread was held up by a copy of its own."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of one kind that the training's thread made for one batch.

    Attributes:
        blocking: the thread goes on when the bytes are there.
        pinned: the memory that they come from is; not looked at where they block.
        idle: the device had nothing to do before them; where they block that was waited for.
        number: of them.
        seconds: of the thread in them, after that.
        nbytes: of all of them.
    """

    blocking: bool
    pinned: bool
    idle: bool
    number: int
    seconds: float
    nbytes: int

    @property
    def launches(self) -> bool:
        """Whether they are only begun."""
        return self.pinned and not self.blocking

    @property
    def holds(self) -> bool:
        """Whether the thread is held up by them alone, for all of their seconds."""
        return self.blocking or (self.idle and not self.pinned)


def seconds_of_byte(seen: Iterable[Copies]) -> float | None:
    """What a byte takes, of those copies that nothing else delayed; None where there were none."""
    seconds, nbytes = 0.0, 0
    for one in seen:
        if one.holds:
            seconds += one.seconds
            nbytes += one.nbytes
    return seconds / nbytes if nbytes else None


def held_up(copies: Sequence[Copies], each_byte: float | None, limit: float) -> float:
    """Seconds for which copies held the training's thread up, within ``limit`` of them.

    Args:
        copies: for one batch.
        each_byte: seconds, for copies that waited for something else too; None: they are not
            counted.
        limit: seconds of all that the training did with this batch.
    """
    found = 0.0
    for one in copies:
        if one.holds:
            found += one.seconds
        elif not one.launches and each_byte is not None:
            found += min(one.seconds, one.nbytes * each_byte)
    return min(max(0.0, found), max(0.0, limit))


def notes_on(seen: Sequence[Copies]) -> list[str]:
    """What the program's author should know of its copies, a sentence each."""
    unpinned = sum(one.number for one in seen if not one.blocking and not one.pinned)
    if not unpinned:
        return []
    note = (
        f"{unpinned} copies to the device were non_blocking from memory that is not pinned, and "
        "hold the program up all the same: pin_memory=True in its loader"
    )
    if seconds_of_byte(seen) is None:
        note += " (how long is not known: the device was never idle before one)"
    return [note]
