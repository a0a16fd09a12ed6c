"""A loader whose samples are made once for several jobs, as its data workers are told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.data.window.free_window import FreeWindow

READ_SHARE: Final = 4
"""This part of what data workers keep a loader reads ahead at most, beyond one for each of them."""


@dataclass(frozen=True, slots=True)
class FreeShare:
    """What data workers are told of a loader that shares, and what it lacks.

    Attributes:
        member: the loader's name in its process.
        window: of the epoch.
        window_bytes: that each data worker keeps for those who share; 0: as much as it has room.
    """

    member: str
    window: FreeWindow
    window_bytes: int = 0

    def bound(self, ahead: int, batch_bytes: int, makers: int) -> int:
        """How many batches may be under way, of ``ahead`` for which there is memory.

        Whoever reads far ahead has made what others lack before they can take it: where data
        workers keep little, that is given up for it, and made again.

        Args:
            ahead: that there may be otherwise.
            batch_bytes: of the largest batch so far; 0: none has come.
            makers: data workers that make batches; one is under way for each in any case.
        """
        if not self.window_bytes or not batch_bytes:
            return ahead
        kept = makers * self.window_bytes // batch_bytes
        return min(ahead, max(2, makers, kept // READ_SHARE))
