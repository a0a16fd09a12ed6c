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
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Answer(Protocol):
    """What the cache says of a file: its bytes, if it has them, and what becomes of its pages."""

    @property
    def content(self) -> bytes | memoryview | None:
        """The bytes."""

    @property
    def drop(self) -> bool:
        """Whether the pages that reading the file fills are to be dropped."""


Found = TypeVar("Found")
Fetch = Callable[[int], Answer]
"""Asks the cache for an open file."""


MOST_BYTES: Final = 256 << 20
"""Copies in one process at a time: who keeps many files open reads the others as ever."""
FEW_FILES: Final = 4

_copies: dict[int, int] = {}


def _have_room(size: int) -> bool:
    """Whether a copy of so many bytes may be made besides those of files that are open."""
    return len(_copies) < FEW_FILES or sum(list(_copies.values())) + size <= MOST_BYTES


class CachedFile(io.FileIO):
    """See the module's docstring."""

    def __init__(
        self,
        path: str | bytes,
        fetch: Fetch,
        note_unseen: Callable[[], None],
        note_storage: Callable[[int, float], None],
    ) -> None:
        """``note_storage``: told of bytes that were read from storage, and since when.

        Raises OSError as ``open`` does.
        """
        super().__init__(path, "r")
        self._fetch: Fetch | None = fetch
        self._note_unseen: Callable[[], None] | None = note_unseen
        self._note_storage: Callable[[int, float], None] | None = None  # once it is not here
        self._will_note_storage = note_storage
        self._lent = False  # whether the program has asked for the descriptor
        self._content: bytes | memoryview | None = None
        self._at = 0
        self._drop = False
        status = os.fstat(super().fileno())
        self.block_bytes = status.st_blksize if status.st_blksize > 1 else io.DEFAULT_BUFFER_SIZE
        """The buffer that ``open`` gives such a file."""
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            self._fetch = self._note_unseen = None  # nothing that a cache could have

    def _is_here(self) -> bool:
        """Whether the bytes are in memory; asks for them once."""
        if self._fetch is not None and not self.closed:
            fetch, self._fetch = self._fetch, None
            if self._lent and os.lseek(super().fileno(), 0, os.SEEK_CUR):
                return False  # the program reads past this object, and means to go on there
            size = os.fstat(super().fileno()).st_size
            if not _have_room(size):
                if self._at:
                    super().seek(self._at)
                return False
            _copies[id(self)] = size
            self._note_unseen = None
            answer = fetch(super().fileno())
            self._content, self._drop = answer.content, answer.drop
            if self._content is None:
                self._note_storage = self._will_note_storage
                _copies.pop(id(self), None)
                if self._at:
                    super().seek(self._at)
        return self._content is not None and not self.closed

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
        content = self._content
        assert content is not None
        piece = memoryview(content)[self._at : self._at + size]
        if not piece and size and os.fstat(super().fileno()).st_size > self._at:
            self._leave()
            return None
        self._at += len(piece)
        return piece

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """As `io.RawIOBase.readinto`."""
        room = memoryview(buffer).cast("B")
        piece = self._take(len(room))
        if piece is None:
            begun = time.perf_counter()
            got = super().readinto(buffer)
            return self._noted(got, got, begun)
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
        found = super().read(size)
        return self._noted(found, len(found), begun)

    def readall(self) -> bytes:
        """As `io.RawIOBase.readall`."""
        if self._is_here():
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
        return self._noted(found, len(found), begun)

    def _noted(self, found: Found, size: int, begun: float) -> Found:
        """What was read from the file itself since then, so many bytes."""
        if self._note_storage is not None and size:
            self._note_storage(size, begun)
        return found

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As `io.RawIOBase.seek`."""
        if self._fetch is None and self._content is None:
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
        if self._fetch is None and self._content is None:
            return super().tell()
        if self.closed:
            return super().tell()
        return self._at

    def fileno(self) -> int:
        """The descriptor; whoever reads from that reads past the cache."""
        self._lent = True
        return super().fileno()

    def close(self) -> None:
        """As `io.RawIOBase.close`; pages that nobody will need are dropped."""
        if self._drop and not self.closed:
            self._drop = False
            os.posix_fadvise(super().fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if self._lent and self._note_unseen is not None:
            self._note_unseen()
        self._content = self._note_unseen = None
        _copies.pop(id(self), None)
        super().close()
