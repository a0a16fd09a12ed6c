"""Files that are there as a whole or detectably damaged: what all kinds of checkpoints stand on.

A file is written beside its place, synced and renamed; its last bytes are a checksum of all the
others. Neither end holds more of it in memory than one part. The file beside it has a name that
nobody else uses, on any machine; what writers that were killed have left there goes in time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from penstock.job.folder_mark import FolderInUseError, FolderMark
from penstock.job.storage import advice, may_heal

DIGEST_BYTES: Final = 32
ABANDONED_SECONDS: Final = 1800.0
"""Whoever has not written to a file beside its place for so long is gone."""
_CHUNK_BYTES: Final = 1 << 20


class DamagedError(Exception):
    """A file that is missing, cut off or damaged; says which and why."""


class FolderError(Exception):
    """A folder in which nothing can be written; says which, why, and what it must be."""


def file_name(noun: str, number: int) -> str:
    """What a file is called that has seen so many of what the noun says."""
    return f"{noun}-{number:012d}.penstock"


def number_of(noun: str, name: str) -> int | None:
    """The number in a file's name; None: it is none of these files."""
    match = re.fullmatch(rf"{noun}-([0-9]{{12}})\.penstock", name)
    return int(match[1]) if match else None


class Series:
    """The files of one kind in a folder, each named by how much it has seen; the newest stay."""

    def __init__(self, folder: Path, noun: str, keep: int, mark: FolderMark | None = None) -> None:
        """Nothing is looked at yet.

        Args:
            folder: that may not be there.
            noun: what the numbers count.
            keep: how many files stay.
            mark: of who writes there; None: this process.

        Raises:
            ValueError: ``keep`` is less than 1.
        """
        if keep < 1:
            raise ValueError(f"keep: {keep}; at least one checkpoint must stay")
        self.folder = folder
        self.mark = mark or FolderMark(folder)
        """To be claimed by whoever writes, before each file."""
        self._noun = noun
        self._keep = keep

    def path(self, number: int) -> Path:
        """Where the file of a number is, or is to be."""
        return self.folder / file_name(self._noun, number)

    def check_folder(self) -> None:
        """Make the folder.

        A disk that is full now is none of this: there may be room by the time of the first file.
        Nor is one that is read-only and has files of ours: it was not so once, and may be mended.
        Where another job may have ended or not, this waits until it is known.

        Raises:
            FolderError: It is of no use, and room alone will not help; or another job's.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK | os.X_OK):
                read_only = os.statvfs(self.folder).f_flag & os.ST_RDONLY
                if read_only and self.list():
                    return
                number = errno.EROFS if read_only else errno.EACCES
                raise OSError(number, os.strerror(number))
            self.mark.check()
        except FolderInUseError as error:
            raise FolderError(
                f"checkpoint_dir: {self.folder}: {error.strerror}; {advice(error)}"
            ) from error
        except FileExistsError as error:
            raise FolderError(
                f"checkpoint_dir: {self.folder}: is no folder; it must be a folder in which this "
                "program may write"
            ) from error
        except OSError as error:
            if not may_heal(error):
                raise FolderError(
                    f"checkpoint_dir: {self.folder}: {error.strerror}; it must be a folder in "
                    "which this program may write"
                ) from error

    def list(self) -> list[tuple[Path, int]]:
        """All files with their numbers, by name, newest first; not checked."""
        if not self.folder.is_dir():
            return []
        named = [(path, number_of(self._noun, path.name)) for path in self.folder.iterdir()]
        found = [(path, number) for path, number in named if number is not None]
        return sorted(found, key=lambda each: each[1], reverse=True)

    def discard_older(self, number: int) -> None:
        """Remove those that are too old, now that this one has been written.

        What has seen more is damaged, or was passed over: it pushes out nothing newer.

        Raises:
            OSError: The system refuses.
        """
        older = [path for path, seen in self.list() if seen <= number]
        for path in older[self._keep :]:
            path.unlink(missing_ok=True)


def new_digest() -> Any:
    """The checksum, to be fed with everything but itself."""
    return hashlib.blake2b(digest_size=DIGEST_BYTES)


def write(path: Path, parts: Iterable[Any]) -> None:
    """Write buffers one after the other, and their checksum.

    What ``parts`` itself raises comes through, and nothing is left either.

    Raises:
        OSError: It cannot be written; nothing is left then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    digest = new_digest()
    try:
        with temporary.open("xb") as file:
            _remove_abandoned(path, temporary)
            for part in parts:
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong first is what is told
            temporary.unlink(missing_ok=True)
        raise


def _remove_abandoned(path: Path, temporary: Path) -> None:
    """Remove what killed writers left: by the clock of the folder, where ours was made just now."""
    now = temporary.stat().st_mtime
    for other in path.parent.glob(f".*{path.suffix}.*.tmp"):
        with contextlib.suppress(OSError):  # another one may be removing it, too
            if now - other.stat().st_mtime > ABANDONED_SECONDS:
                other.unlink()


def verify(path: Path) -> None:
    """Check the whole file against its checksum.

    Raises:
        DamagedError: A file that is missing, cut off or damaged.
    """
    digest = new_digest()
    try:
        with path.open("rb") as file:
            left = os.fstat(file.fileno()).st_size - DIGEST_BYTES
            if left < 0:
                raise DamagedError(f"{path}: cut off after {left + DIGEST_BYTES} bytes")
            while left > 0:
                chunk = file.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    raise DamagedError(f"{path}: cut off while it was read")
                digest.update(chunk)
                left -= len(chunk)
            if file.read(DIGEST_BYTES) != digest.digest():
                raise DamagedError(f"{path}: the checksum does not match, the file is damaged")
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
