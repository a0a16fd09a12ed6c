"""A large file, of which the cache keeps ranges: what of it is in memory around a place.

Whoever reads a whole range, or on from the one before, has it kept when it is met first. Of one
that jumps about and reads a little here and there, ranges are kept that are met again: to read all
of a range for a little of it costs more than that little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from penstock.data.cache.policy import RANGE_BYTES

MUCH: Final = RANGE_BYTES // 4


class Wanted(NamedTuple):
    """What a program reads next of a file."""

    number: int  # of the range, from 1
    at: int  # in the file
    size: int
    little: bool  # of the range, as far as is known
    first: bool  # it was in another range before


class Answer(Protocol):
    """What the cache says of a file, or of what is around a place in it."""

    @property
    def content(self) -> bytes | memoryview | None:
        """All of it, or bytes with that place among them; None: the program reads it itself."""

    @property
    def start(self) -> int:
        """Where these begin in the file."""

    @property
    def drop(self) -> bool:
        """Whether the pages that reading the file fills are to be dropped."""


class Ranges:
    """See the module's docstring."""

    def __init__(self, fetch: Callable[[Wanted], Answer]) -> None:
        self._fetch = fetch
        self._content: bytes | memoryview | None = None
        self._start = 0
        self._number = 0
        self._end = -1  # of what was read last
        self.drop = False

    def take(self, at: int, size: int) -> memoryview | None:
        """Bytes from there, up to so many, and one at least; None: the file is to be read.

        That is as far as the end of the range, see `limit`.
        """
        number = at // RANGE_BYTES + 1
        first = number != self._number
        if first:
            self._content = None
        if first or (self._content is not None and not self._covers(at)):
            little = size < MUCH and at != self._end
            answer = self._fetch(Wanted(number, at, size, little, first))
            self._number, self._start, self._content = number, answer.start, answer.content
            self.drop |= answer.drop
        self._end = at
        if self._content is None or not self._covers(at):
            return None
        piece = memoryview(self._content)[at - self._start : at - self._start + size]
        self._end += len(piece)
        return piece

    def read(self, size: int) -> None:
        """So many bytes were read of the file itself, after `take` gave none."""
        self._end += size

    def _covers(self, at: int) -> bool:
        content = self._content
        return content is not None and self._start <= at < self._start + len(content)


def limit(at: int, size: int) -> int:
    """Of so many bytes from there, those up to the end of the range."""
    return min(size, RANGE_BYTES - at % RANGE_BYTES)
