"""The weights that a node has: a folder of files that its processes map, each named by its digest.

A file is written under another name, checked against its digest and then renamed, so that what has
its name is whole. Whoever maps one checks it again, and maps it privately: what is written to such
memory is this process's own. A lock on the file says that somebody maps or writes it; the kernel
gives it back however that process ends. What an ended writer has left is gone on with.

The folder has a bound, and leaves some of the disk free: what was used longest ago, and nobody has
mapped, makes room. Where that is not enough nothing is kept, which is an error that says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import mmap
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from penstock.crds import environment as names
from penstock.data.errors import DataError
from penstock.data.variables import WEIGHTS_BYTES, WEIGHTS_DEFAULT_BYTES
from penstock.data.weight_bundle import Weights

logger = logging.getLogger(__name__)

FREE_BYTES: Final = 1 << 30
"""Of its disk that stay free."""
LOCK_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.05
WRITE_BYTES: Final = 16 << 20


class WeightsError(DataError):
    """Weights that cannot be kept on this node, or are not what their digest says."""


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    size: int  # that it has, or will have
    used_at: float


class NodeFolder:
    """See the module's docstring."""

    def __init__(self, path: Path, max_bytes: int = WEIGHTS_DEFAULT_BYTES) -> None:
        """Raises WeightsError: it is not this user's alone."""
        self.path = path
        self._max_bytes = max_bytes
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = path.lstat()
        except OSError as error:
            raise WeightsError(f"no folder for weights: {error}") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise WeightsError(
                f"{path}: must be a folder that this user alone may enter (mode 0700): set "
                f"{names.WEIGHTS_DIR} to another"
            )

    def find(self, weights: Weights) -> mmap.mmap | None:
        """Weights that lie here, mapped and checked; None: they do not."""
        path = self._file(weights)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            # The mapping has a descriptor of its own of the same open file, and so the lock.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            found = os.fstat(descriptor)
            if not found.st_nlink:
                return None  # it made room meanwhile
            memory = _mapped(descriptor, weights) if found.st_size == weights.size else None
            if memory is None:
                logger.error("%s is not what its name says: removed", path)
                path.unlink(missing_ok=True)
                return None
            os.utime(path)
        except BlockingIOError:
            return None  # it makes room just now
        else:
            return memory
        finally:
            os.close(descriptor)

    def begin(self, weights: Weights, *, beside: bool = False) -> Part | None:
        """A file to be written; None: another process writes it.

        ``beside``: that one has stopped, so write one of this process's own.

        Raises:
            WeightsError: there is no room.
        """
        path = self._file(weights, f".part.{os.getpid()}" if beside else ".part")
        with self._locked():
            self._make_room(weights.size, besides=path)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            if self._file(weights).exists():  # the other has just finished
                path.unlink(missing_ok=True)
                os.close(descriptor)
                return None
        return Part(descriptor, path, self._file(weights), weights)

    def written_at(self, weights: Weights) -> float:
        """When whoever writes it last did, as `time.time` counts; 0: nobody does."""
        try:
            return self._file(weights, ".part").stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def publish(self, weights: Weights) -> bool:
        """Have this process's own weights lie here; False: another process writes them just now.

        Raises:
            WeightsError: there is no room, or they were written to since they were named.
            OSError: the disk.
        """
        if self._file(weights).exists():
            return True
        part = self.begin(weights)
        if part is None:
            return False
        with part:
            while part.have < weights.size:
                for piece in weights.read(part.have, WRITE_BYTES):
                    part.write(piece)
            part.finish()
        return True

    def _file(self, weights: Weights, ending: str = ".weights") -> Path:
        return self.path / f"{weights.digest.hex()}-{weights.size}{ending}"

    def _entries(self) -> Iterator[_Entry]:
        for path in self.path.iterdir():
            size = path.name.split(".")[0].rpartition("-")[2]
            with contextlib.suppress(FileNotFoundError):
                if size.isdecimal():
                    yield _Entry(path, int(size), path.stat().st_mtime)

    def _make_room(self, size: int, besides: Path) -> None:
        """With the folder locked."""
        entries = sorted(self._entries(), key=lambda one: one.used_at)
        entries = [one for one in entries if one.path != besides]
        held = sum(one.size for one in entries)
        for entry in entries:
            if held + size <= self._max_bytes and size + FREE_BYTES <= self._free():
                return
            if _remove_unused(entry.path):
                held -= entry.size
        if held + size > self._max_bytes or size + FREE_BYTES > self._free():
            raise WeightsError(
                f"no room for {size >> 20} MiB of weights in {self.path}, of which {held >> 20} of "
                f"{self._max_bytes >> 20} MiB are in use and {self._free() >> 20} MiB of its disk "
                f"are free: set {names.WEIGHTS_BYTES}, or {names.WEIGHTS_DIR} to another folder"
            )

    def _free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise WeightsError(f"{self.path} was locked for too long") from None
                    time.sleep(LOOK_SECONDS)
            yield
        finally:
            os.close(descriptor)


class Part:
    """A file that is being written, until it is closed; what is there stays for the next."""

    def __init__(self, descriptor: int, path: Path, whole: Path, weights: Weights) -> None:
        self._descriptor = descriptor
        self._path, self._whole, self._weights = path, whole, weights
        self.have = os.fstat(descriptor).st_size
        self.resumed = self.have > 0
        if self.have > weights.size:
            self._begin_again()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def write(self, piece: Any) -> None:
        """The next bytes; OSError: the disk does not take them."""
        view = memoryview(piece)
        while view:
            count = os.pwrite(self._descriptor, view, self.have)
            view, self.have = view[count:], self.have + count

    def finish(self) -> mmap.mmap:
        """The weights, mapped, and from now on there for all.

        Raises:
            WeightsError: these are not they; nothing of it is kept.
        """
        memory = _mapped(self._descriptor, self._weights)
        if memory is None:
            self._begin_again()
            raise WeightsError("what came is not what its digest says: it is not used")
        os.fchmod(self._descriptor, 0o400)
        self._path.rename(self._whole)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        return memory

    def _begin_again(self) -> None:
        os.ftruncate(self._descriptor, 0)
        self.have = 0


def node_folder(environ: Mapping[str, str] = os.environ) -> NodeFolder:
    """Where the environment says, or this user's among temporary files.

    Raises:
        WeightsError: it cannot be used.
    """
    said = environ.get(names.WEIGHTS_DIR)
    path = Path(said or Path(tempfile.gettempdir(), f"penstock-weights-{os.getuid()}"))
    return NodeFolder(path, WEIGHTS_BYTES.now(environ))


def _mapped(descriptor: int, weights: Weights) -> mmap.mmap | None:
    """A private mapping; None: it is not what the digest says."""
    memory = mmap.mmap(descriptor, weights.size, access=mmap.ACCESS_COPY)
    return memory if hashlib.sha256(memory).digest() == weights.digest else None


def _remove_unused(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)
