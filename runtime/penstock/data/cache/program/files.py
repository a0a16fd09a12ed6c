"""Files whose bytes come from the cache, and that are otherwise what ``open()`` gives.

`CachedFile` is the raw file of the operating system, open as ever: its descriptor, name and errors
are real. Its bytes are asked for when the first of them is read, and those that were found are read
from memory. What lies in the cache is a version of the file; a program that reads on at its end and
finds it longer now goes on in the file itself.
"""

from __future__ import annotations

import io
import os
import stat
import time
from typing import TYPE_CHECKING, Final, Protocol

from penstock.data.cache.program.ranges import Answer, Ranges, Wanted, limit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Source(Protocol):
    """Where the bytes of an open file come from."""

    def in_ranges(self, size: int) -> bool:
        """Whether it is kept in ranges when it has so many bytes."""

    def fetch(self, descriptor: int) -> Answer:
        """All of it, if the cache has it."""

    def fetch_range(self, descriptor: int, wanted: Wanted) -> Answer:
        """What is around a place in it, if the cache has that."""

    def note_unseen(self) -> None:
        """It was read past the cache."""

    def note_storage(self, size: int, begun: float, of_range: bool) -> None:
        """So many bytes were read from storage, since that time of ``perf_counter``."""


MOST_BYTES: Final = 256 << 20
"""Copies in one process at a time: who keeps many files open reads the others as ever."""
FEW_FILES: Final = 4

_copies: dict[int, int] = {}


def _have_room(size: int) -> bool:
    """Whether a copy of so many bytes may be made besides those of files that are open."""
    return len(_copies) < FEW_FILES or sum(list(_copies.values())) + size <= MOST_BYTES


class CachedFile(io.FileIO):
    """See the module's docstring."""

    def __init__(self, path: str | bytes, source: Source) -> None:
        """Raises OSError as ``open`` does."""
        super().__init__(path, "r")
        self._source: Source | None = source
        self._asked = False
        self._is_noted = False  # what is read from storage
        self._lent = False  # whether the program has asked for the descriptor
        self._content: bytes | memoryview | None = None
        self._ranges: Ranges | None = None  # of a file that is kept so
        self._at = 0
        self._drop = False
        status = os.fstat(super().fileno())
        self.block_bytes = status.st_blksize if status.st_blksize > 1 else io.DEFAULT_BUFFER_SIZE
        """The buffer that ``open`` gives such a file."""
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            self._source = None  # nothing that a cache could have

    @property
    def _has_own_place(self) -> bool:
        """Whether the place in the file is kept here, and not by the system."""
        asking = self._source is not None and not self._asked
        return asking or self._content is not None or self._ranges is not None

    def _is_here(self) -> bool:
        """Whether the bytes come from the cache, as far as it has them; asks once."""
        if self._source is not None and not self._asked and not self.closed:
            self._asked = True
            if self._lent and os.lseek(super().fileno(), 0, os.SEEK_CUR):
                return False  # the program reads past this object, and means to go on there
            self._ask(self._source, super().fileno())
            if not self._has_own_place and self._at:
                super().seek(self._at)
        return (self._content is not None or self._ranges is not None) and not self.closed

    def _ask(self, source: Source, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if source.in_ranges(size):
            self._is_noted = True
            self._ranges = Ranges(lambda wanted: source.fetch_range(descriptor, wanted))
        elif _have_room(size):
            self._is_noted = True
            _copies[id(self)] = size
            answer = source.fetch(descriptor)
            self._content, self._drop = answer.content, answer.drop
            if self._content is None:
                _copies.pop(id(self), None)

    def _leave(self) -> None:
        """Go on in the file itself."""
        self._content = None
        _copies.pop(id(self), None)
        if not self.closed:
            super().seek(self._at)

    def _take(self, size: int) -> memoryview | None:
        """The next bytes, so many at most; None: they are the file's to give."""
        if not self._is_here():
            return None
        if self._ranges is not None:
            return self._take_range(self._ranges, size)
        content = self._content
        assert content is not None
        piece = memoryview(content)[self._at : self._at + size]
        if not piece and size and os.fstat(super().fileno()).st_size > self._at:
            self._leave()
            return None
        self._at += len(piece)
        return piece

    def _take_range(self, ranges: Ranges, size: int) -> memoryview | None:
        piece = None
        if size and self._at < os.fstat(super().fileno()).st_size:
            piece = ranges.take(self._at, size)
        if piece is None:
            super().seek(self._at)
        else:
            self._at += len(piece)
        return piece

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """As `io.RawIOBase.readinto`."""
        room = memoryview(buffer).cast("B")
        piece = self._take(len(room))
        if piece is None:
            begun = time.perf_counter()
            if self._ranges is not None:
                room = room[: limit(self._at, len(room))]
            got = super().readinto(room)
            self._note(got, begun)
            return got
        room[: len(piece)] = piece
        return len(piece)

    def read(self, size: int | None = -1, /) -> bytes:
        """As `io.RawIOBase.read`."""
        if size is None or size < 0:
            return self.readall()
        piece = self._take(size)
        if piece is not None:
            return bytes(piece)
        begun = time.perf_counter()
        if self._ranges is not None:
            size = limit(self._at, size)
        found = super().read(size)
        self._note(len(found), begun)
        return found

    def readall(self) -> bytes:
        """As `io.RawIOBase.readall`."""
        if self._is_here():
            if self._ranges is not None:
                return self._read_ranges()
            content = self._content
            assert content is not None
            if not self._at and type(content) is bytes:
                self._at = len(content)
                return content
            piece = self._take(len(content))
            if piece is not None:
                return bytes(piece)
        begun = time.perf_counter()
        found = super().readall()
        self._note(len(found), begun)
        return found

    def _read_ranges(self) -> bytes:
        """All from here on, without a second copy of it."""
        gathered = io.BytesIO()
        while piece := self.read(MOST_BYTES):
            gathered.write(piece)
        return gathered.getvalue()

    def _note(self, size: int, begun: float) -> None:
        """So many bytes were read from the file itself since then."""
        if self._ranges is not None:
            self._at += size
            self._ranges.read(size)
        if self._is_noted and self._source is not None and size:
            self._source.note_storage(size, begun, self._ranges is not None)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As `io.RawIOBase.seek`."""
        if not self._has_own_place:
            return super().seek(offset, whence)
        at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        if whence == os.SEEK_END:
            at = os.fstat(super().fileno()).st_size
        if at is None or at + offset < 0:
            return super().seek(offset, whence)  # which says what is wrong with it
        self._at = at + offset
        return self._at

    def tell(self) -> int:
        """As `io.RawIOBase.tell`."""
        if self.closed or not self._has_own_place:
            return super().tell()
        return self._at

    def fileno(self) -> int:
        """The descriptor; whoever reads from that reads past the cache."""
        self._lent = True
        return super().fileno()

    def close(self) -> None:
        """As `io.RawIOBase.close`; pages that nobody will need are dropped."""
        drop = self._drop or (self._ranges is not None and self._ranges.drop)
        if drop and not self.closed:
            os.posix_fadvise(super().fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if self._lent and not self._is_noted and self._source is not None:
            self._source.note_unseen()
        self._content = self._ranges = self._source = None
        self._drop = False
        _copies.pop(id(self), None)
        super().close()
