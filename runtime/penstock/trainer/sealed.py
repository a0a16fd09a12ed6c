"""Files that are there as a whole or detectably damaged: what all kinds of checkpoints stand on.

A file is written beside its place, synced and renamed; its last bytes are a checksum of all the
others. Neither end holds more of it in memory than one part. The file beside it has a name that
nobody else uses, on any machine; what writers that were killed have left there goes in time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

DIGEST_BYTES: Final = 32
ABANDONED_SECONDS: Final = 1800.0
"""Whoever has not written to a file beside its place for so long is gone."""
_CHUNK_BYTES: Final = 1 << 20


class DamagedError(Exception):
    """A file that is missing, cut off or damaged; says which and why."""


def new_digest() -> Any:
    """The checksum, to be fed with everything but itself."""
    return hashlib.blake2b(digest_size=DIGEST_BYTES)


def write(path: Path, parts: Iterable[Any]) -> None:
    """Write buffers one after the other, and their checksum. Raises OSError; nothing is left then.

    What ``parts`` itself raises comes through, and nothing is left either.
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
    """Check the whole file against its checksum. Raises DamagedError."""
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
