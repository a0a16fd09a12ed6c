"""What the kernel says of a file and of the way to it; a client's word is never enough."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.data.cache.policy import Key, key_of

MOST_FOLDERS: Final = 65_536
FOLDER_SECONDS: Final = 5.0
"""For so long it is remembered of so many folders whether all may read in them."""


def readable_key(descriptor: int) -> Key | None:
    """What an open file is; None where it is no regular file, or was not opened for reading."""
    try:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        status = os.fstat(descriptor)
    except OSError:
        return None
    readable = flags & os.O_ACCMODE != os.O_WRONLY and not flags & os.O_PATH
    return key_of(status) if readable and stat.S_ISREG(status.st_mode) else None


def same_file(path: str, file: str, key: Key) -> bool:
    """Whether a name below a path is this file on this node: a client's word is not enough."""
    if not plain_name(file):
        return False
    try:
        return key_of(Path(path, file).stat(), key.number) == key
    except (OSError, ValueError):
        return False


class PublicFolders:
    """Which folders are open to all users, as it was a moment ago. Any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._known: dict[str, bool] = {}

    def __contains__(self, folder: Path) -> bool:
        """Raises OSError: nobody can say."""
        now, known, name = self._clock(), self._known, str(folder)
        if now - self._since > FOLDER_SECONDS or len(known) >= MOST_FOLDERS:
            known = self._known = {}
            self._since = now
        if name not in known:
            known[name] = bool(folder.stat().st_mode & stat.S_IXOTH)
        return known[name]


def readable_by_all(path: str, file: str, folders: PublicFolders) -> bool:
    """Whether a file, and the folders to it from a path, are open to all users."""
    try:
        root, real = Path(path).resolve(), Path(path, file).resolve()
        if not real.is_relative_to(root) or not real.stat().st_mode & stat.S_IROTH:
            return False
        for folder in (one for one in real.parents if one != root and one.is_relative_to(root)):
            if folder not in folders:
                return False
    except OSError:
        return False
    return True


def open_below(path: str, file: str) -> int:
    """Open a file below a path for reading. Raises OSError, ValueError."""
    if not plain_name(file):
        raise ValueError(f"{file}: no name below {path}")
    return os.open(Path(path, file), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def plain_name(file: str) -> bool:
    """Whether a name stays below what it is relative to, but for links."""
    return bool(file) and not file.startswith("/") and ".." not in file.split("/")


def user_of(sock: socket.socket) -> int:
    """The user whose process is at the other end of a Unix socket."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little")
