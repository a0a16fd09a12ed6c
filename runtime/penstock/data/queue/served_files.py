"""Files of this process's machine that its data workers may read through their connections.

A data worker has the job's token and runs the job's own code; it gets what it could have read if
its volumes were those of the training pod, and no more: regular files below the folders that the
loader's own samples came from, a part at a time. Below such a folder nothing is given whose name,
or whose folder's, begins with a dot: keys, caches, and what Kubernetes mounts of Secrets lie there.

Each part says of which version of the file it is, so that who asks puts no two together. A file is
open while one part is read, and closed before that is sent: no more are open at once than data
workers are connected, however slowly they take what they asked for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from penstock.data.errors import FrameError
from penstock.data.transport.messages import PART_BYTES

MOST_ROOTS: Final = 256
MOST_PATH: Final = 4096


_SYSTEM: Final = ("/proc", "/sys", "/dev", "/run", "/var/run")


class Served(NamedTuple):
    """A part of a file, the bytes of all of it, and the system's number of an error; 0: none.

    ``version``: of the file; another one when another file has its name, or it was written to.
    """

    part: bytes
    total: int
    error: int
    version: str = ""


class ServedFiles:
    """See the module's docstring; of all loaders of a process."""

    def __init__(self) -> None:
        self._roots: dict[str, None] = {}

    def allow(self, roots: Iterable[str]) -> None:
        """Files below these folders may be read; never all of the machine's."""
        for root in roots:
            real = os.path.realpath(root)
            if real != "/" and len(self._roots) < MOST_ROOTS:
                self._roots.setdefault(real)

    def read(self, path: object, offset: object, size: object) -> Served:
        """A part of a file; ESTALE where it was written to meanwhile.

        Raises:
            FrameError: nobody may ask so.
        """
        if not isinstance(path, str) or not 0 < len(path) <= MOST_PATH or "\0" in path:
            raise FrameError("a file without a path was asked for")
        if type(offset) is not int or type(size) is not int or offset < 0:
            raise FrameError(f"{size} bytes of a file at {offset} were asked for")
        if not 0 < size <= PART_BYTES:
            raise FrameError(f"{size} bytes of a file were asked for, {PART_BYTES} are the most")
        real = Path(path).resolve()
        if not any(_is_data(real, root) for root in self._roots):
            return Served(b"", 0, errno.EACCES)
        try:
            file = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return Served(b"", 0, error.errno or errno.EIO)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return Served(b"", 0, errno.EACCES)
            part = os.pread(file, size, offset)
            if (version := _version(status)) != _version(os.fstat(file)):
                return Served(b"", 0, errno.ESTALE)
            return Served(part, status.st_size, 0, version)
        except OSError as error:
            return Served(b"", 0, error.errno or errno.EIO)
        finally:
            os.close(file)


def _version(status: os.stat_result) -> str:
    """Of a file: as exact as its file system's times are, a clock tick (1 to 10 ms) on most."""
    which = (status.st_dev, status.st_ino, status.st_size)
    return "-".join(map(str, (*which, status.st_mtime_ns, status.st_ctime_ns)))


def _is_data(real: Path, root: str) -> bool:
    """Whether a file, without links in its path, is one that a folder of samples may give."""
    if not real.is_relative_to(root) or any(real.is_relative_to(place) for place in _SYSTEM):
        return False
    return not any(part.startswith(".") for part in real.relative_to(root).parts)
