"""The training process's pinned memory, as a local worker writes to it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.data.transport.batch_codec import Packed
from penstock.data.transport.remote_write import RemoteWriter


@dataclass(frozen=True, slots=True)
class Place:
    """Memory of the training process that was lent with a request."""

    address: int
    size: int


class PinnedMemory:
    """Writes batches where they were asked for; for one thread."""

    def __init__(self, pid: int | None = None) -> None:
        """``pid``: of the training process; None: it is not to be written to."""
        self._pid = pid
        self._writer: RemoteWriter | None = None

    def write(self, place: Place, packed: Packed) -> bool:
        """Have a batch in its place; False if it does not fit. No write comes after that.

        Raises:
            OSError: this process cannot write there.
        """
        if packed.size > place.size or self._pid is None:
            return False
        if self._writer is None:
            self._writer = RemoteWriter(self._pid)
        self._writer.write(place.address, packed.parts)
        return True
