"""Pickling up to a limit: what is larger costs neither the time nor the memory of a copy.

A dataset that holds its samples may be as large as the machine's memory. An array or tensor that
is beyond the limit is noticed before it is copied, anything else as soon as it has been written.
"""

from __future__ import annotations

import io
from typing import Any

import cloudpickle

from penstock.data.errors import PipelineTooLargeError
from penstock.data.origin import note_name


def dumps_within(value: Any, limit: int, named: set[str] | None = None) -> bytes:
    """As `cloudpickle.dumps`; ``named`` gets the names by which it refers to code.

    Raises:
        PipelineTooLargeError: it has more than ``limit`` bytes.
        Exception: whatever the classes of the value raise.
    """
    file = Bounded(limit)
    pickler = BoundedPickler(file, limit)
    pickler.dump(value)
    if named is not None:
        named |= pickler.named
    return file.getvalue()


def _refuse(limit: int) -> None:
    raise PipelineTooLargeError(
        f"the dataset is more than {limit >> 20} MiB when pickled, which is the most that is sent: "
        "let it open its files by itself instead of holding the samples"
    )


class Bounded(io.BytesIO):
    """A file in memory that refuses to grow beyond so many bytes, with PipelineTooLargeError."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = self._left = limit

    def write(self, piece: Any) -> int:
        self._left -= memoryview(piece).nbytes
        if self._left < 0:
            _refuse(self._limit)
        return super().write(piece)


class BoundedPickler(cloudpickle.Pickler):  # type: ignore[misc]  # has no types
    """Refuses what is too large before it is copied; of `dumps_within`."""

    def __init__(self, file: io.BytesIO, limit: int) -> None:
        super().__init__(file)
        self._limit = self._left = limit
        self.named: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        note_name(obj, self.named)
        size = getattr(obj, "nbytes", None) if not isinstance(obj, type) else None
        if type(size) is int:
            self._left -= size
            if self._left < 0:
                _refuse(self._limit)
        return super().reducer_override(obj)
