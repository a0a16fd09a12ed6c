"""Results that lie in the memory of a cache that is this user's alone, copied from there."""

from __future__ import annotations

import mmap
import os
import zlib
from typing import Any, Final

from penstock.data.cache import messages
from penstock.data.transport import frame

MOST_PARTS: Final = 512
"""Mapped at once: twice as many as there are."""


class MappedResults:
    """The parts of the daemon's arena that it has given. Any thread may use it."""

    def __init__(self) -> None:
        self._parts: dict[int, memoryview] = {}

    @property
    def parts(self) -> list[int]:
        """Those that need not be given again."""
        return list(self._parts)

    def content(self, answer: frame.Frame) -> bytearray | None:
        """A copy of the result that the daemon says of; None: it is not there any more.

        Its place may be used for another while it is copied: the checksum tells.
        """
        number, start, size, crc = 0, 0, 0, None
        if answer.kind == messages.PLACE:
            number, start, size, crc = answer.header
        for descriptor in answer.descriptors:
            self._add(number, descriptor)
        content: Any = None
        if answer.kind == messages.CONTENT:
            content, crc = answer.body.obj, answer.header[1]
        elif (part := self._parts.get(number)) is not None:
            content = bytearray(part[start : start + size])
        return content if type(content) is bytearray and zlib.crc32(content) == crc else None

    def _add(self, number: int, descriptor: int) -> None:
        try:
            if len(self._parts) >= MOST_PARTS:
                self._parts.clear()  # they are asked for again
            found = mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ)
            self._parts[number] = memoryview(found)
        except (OSError, ValueError):
            self._parts.pop(number, None)
        finally:
            os.close(descriptor)
