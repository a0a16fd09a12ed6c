"""How files of saved batches come to be, whole or not at all, and what is said if there is no room.

A file is written under a temporary name, brought to the disk and renamed; the folder too is brought
there before anything counts on the name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from penstock.data.errors import SavedError
from penstock.data.regular_file import open_regular
from penstock.data.saved.index import INDEX_NAME, MAX_INDEX_BYTES, Index, read_index, write_index

TEMPORARY: Final = ".tmp"
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_JOINED_BYTES: Final = 64 << 10
"""Smaller parts are written together."""


class NewFile:
    """A file that is not there yet, until `commit`; `drop` has it never have been."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self.size = 0
        self._temporary = path.with_name(path.name + TEMPORARY)
        self._file = self._temporary.open("wb", buffering=0)

    def write(self, parts: list[Any]) -> None:
        """Append flat buffers; raises OSError, and the file can only be dropped then."""
        small = bytearray()
        for part in parts:
            if len(part) < _JOINED_BYTES:
                small += part
                continue
            self._write(small)
            small = bytearray()
            self._write(part)
        self._write(small)

    def _write(self, part: Any) -> None:
        left = memoryview(part)
        while len(left):
            written = self._file.write(left)
            assert written, "a file that blocks takes something or raises"
            left = left[written:]
            self.size += written

    def commit(self) -> None:
        """Have it there, whatever happens to the machine; raises OSError."""
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self.path)
        _sync_folder(self.path.parent)

    def drop(self) -> None:
        """It is not wanted, or could not be written."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


def flat(part: Any) -> Any:
    """A part of a packed batch as a buffer of bytes in one dimension."""
    return part.reshape(-1).view(np.uint8).data if isinstance(part, np.ndarray) else part


def put_index(folder: Path, index: Index) -> None:
    """Replace the index; raises OSError, and the one before is there still."""
    new = NewFile(folder / INDEX_NAME)
    try:
        new.write([write_index(index)])
        new.commit()
    except OSError:
        new.drop()
        raise


def get_index(folder: Path) -> Index | None:
    """The index of a folder; None where there is none.

    Raises:
        SavedError: it cannot be read; names the file.
    """
    path = folder / INDEX_NAME
    try:
        with open_regular(path) as file:
            content = _first_bytes(file, MAX_INDEX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SavedError(f"{path}: {error.strerror}") from error
    if len(content) > MAX_INDEX_BYTES:
        raise SavedError(f"{path}: an index has at most {MAX_INDEX_BYTES} bytes")
    try:
        return read_index(content)
    except SavedError as error:
        raise SavedError(f"{path}: {error}") from error


def _first_bytes(file: BinaryIO, most: int) -> bytes:
    found = bytearray()
    while piece := file.read(most - len(found)):
        found += piece
    return bytes(found)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While this process alone saves to a folder.

    Raises:
        SavedError: another one does.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SavedError(f"{folder}: another process saves batches there") from None
        except OSError:
            pass  # a file system without locks: whoever saves twice at once is on their own
        yield
    finally:
        os.close(descriptor)


def no_room(folder: Path, error: OSError, needed: int, kept: int) -> SavedError:
    """What to tell of a disk that is full.

    Args:
        folder: where there was no room.
        error: by which that was found.
        needed: bytes that are still to be written, as far as is known.
        kept: batches that are saved whatever becomes of the rest.
    """
    again = f"{kept} batches are saved and stay: make room, and run it again to go on with the next"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if error.errno == errno.EFBIG:
        return SavedError(
            f"{folder}: a file may have at most {size_text(limit)} here (ulimit -f, or the file "
            f"system): raise that, or use smaller shards; {again}"
        )
    free = shutil.disk_usage(folder).free
    missing = max(needed - free, 1)
    left, room, more = size_text(needed), size_text(free), size_text(missing)
    return SavedError(
        f"{folder}: {os.strerror(error.errno or errno.ENOSPC)}: about {left} are still to be "
        f"written and {room} are free: {more} are missing; {again}"
    )


def size_text(size: int) -> str:
    """Bytes, in the unit that they are some of."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
