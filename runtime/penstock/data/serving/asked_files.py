"""Files that a data worker reads where the program is, in the place of its own.

While a batch of a loader whose reading is local is made (`penstock.data.cuts.reading`), what its
thread opens for reading below the loader's folders comes over the connection of its program, whole,
before ``open`` returns: nothing else of the data worker is touched, and other threads read as ever.
What C code opens by path is read here.

All parts of what ``open`` gives are of one version of the file. One that is replaced or written to
between two parts is read again from its start, and after `MOST_TRIES` that is an error: the program
then makes the batch itself, with what it sees.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from penstock.data.transport import messages
from penstock.data.transport.messages import PART_BYTES, SILENCE_SECONDS

MOST_BYTES: Final = 256 << 20
"""Of one file; larger ones are read here."""
MOST_TRIES: Final = 4
"""To read one file, all of it of one version."""
_READING: Final = frozenset({"r", "rb", "br", "rt", "tr"})
_BINARY: Final = frozenset({"rb", "br"})

Send = Callable[[int, Any], None]


class _Part(NamedTuple):
    """As `penstock.data.queue.served_files.Served`."""

    total: int
    error: int
    version: str
    content: bytes


class AskedFiles:
    """What one program is asked for, a part at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked: tuple[str, int] | None = None
        self._came: _Part | None = None
        self._closed = False

    def read(self, send: Send, path: str) -> bytes | None:
        """All of a file; None: it is too large.

        Raises:
            OSError: as ``open``, there; or the connection is over, or the file changes again and
                again while it is read.
        """
        for _ in range(MOST_TRIES):
            try:
                return self._read_version(send, path)
            except _ChangedError:
                continue
        problem = f"it changed while it was read, {MOST_TRIES} times in a row"
        raise OSError(errno.ESTALE, problem, path)

    def _read_version(self, send: Send, path: str) -> bytes | None:
        """As `read`, once.

        Raises:
            _ChangedError: there are parts of two versions.
        """
        parts: list[bytes] = []
        have, total, version = 0, 1, ""
        while have < total:
            part = self._ask(send, path, have)
            error = part.error
            if error == errno.ESTALE or (not error and parts and part.version != version):
                raise _ChangedError
            total, version = part.total, part.version
            if not error and total > MOST_BYTES:
                return None
            if not error and len(part.content) < min(PART_BYTES, total - have):
                error = errno.EIO
            if error:
                raise OSError(error, os.strerror(error), path)
            parts.append(part.content)
            have += len(part.content)
        return b"".join(parts)

    def _ask(self, send: Send, path: str, offset: int) -> _Part:
        with self._changed:
            self._asked, self._came = (path, offset), None
        send(messages.READ, [path, offset, PART_BYTES])
        deadline = time.monotonic() + SILENCE_SECONDS
        with self._changed:
            while not self._answered():
                if not self._changed.wait(deadline - time.monotonic()):
                    break
            self._asked, came = None, self._came
        if came is None:
            raise OSError(errno.EIO, "the training process did not answer", path)
        return came

    def _answered(self) -> bool:
        return self._came is not None or self._closed

    def put(
        self, path: str, offset: int, total: int, error: int, version: str, body: memoryview
    ) -> None:
        """A part has come, of a file of ``total`` bytes; one that nobody waits for is dropped."""
        with self._changed:
            if self._asked == (path, offset):
                self._came = _Part(int(total), int(error), str(version), bytes(body))
                self._changed.notify_all()

    def close(self) -> None:
        """The connection is over."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class _ChangedError(Exception):
    """Two parts of a file are of two versions of it."""


class _Reading(threading.local):
    """Of a thread: from where it reads now."""

    def __init__(self) -> None:
        self.find: Callable[[Any], tuple[str, bytes] | None] | None = None


_reading: Final = _Reading()


@contextmanager
def read_there(
    files: AskedFiles, send: Send, roots: tuple[str, ...], folder: str
) -> Iterator[None]:
    """Have this thread read files below ``roots`` where the program is, whose folder is given."""
    _install()

    def find(file: Any) -> tuple[str, bytes] | None:
        try:
            path = os.path.normpath(os.path.join(folder, os.fsdecode(file)))  # noqa: PTH118  # pathlib keeps '..'
        except (TypeError, ValueError):
            return None  # a descriptor
        if not any(path.startswith(f"{root}/") for root in roots):
            return None
        content = files.read(send, path)
        return None if content is None else (path, content)

    before, _reading.find = _reading.find, find
    try:
        yield
    finally:
        _reading.find = before


class _Content(io.BytesIO):
    """What ``open`` gives in the place of a file; it has no descriptor."""

    def __init__(self, name: Any, content: bytes) -> None:
        super().__init__(content)
        self.name = name
        self.mode = "rb"  # type: ignore[misc] # as ``open`` gives it

    def writable(self) -> bool:
        return False

    def write(self, _: Any) -> int:
        raise io.UnsupportedOperation("not writable")


def _install() -> None:
    """Have ``open`` look from where its thread reads; once in a process."""
    plain = builtins.open
    if getattr(plain, "__penstock_there__", False):
        return

    def open(  # noqa: A001 - it is that
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        find = _reading.find
        if find is None or mode not in _READING or opener is not None:
            return plain(file, mode, buffering, encoding, errors, newline, closefd, opener)
        _reading.find = None  # to ask may open something, too
        try:
            found = find(file)
        finally:
            _reading.find = find
        if found is None:
            return plain(file, mode, buffering, encoding, errors, newline, closefd, opener)
        content = _Content(file, found[1])
        if mode in _BINARY:
            return content
        text: Any = io.TextIOWrapper(content, io.text_encoding(encoding), errors, newline)
        text.mode = mode  # as ``open`` does
        return text

    open.__doc__ = plain.__doc__
    open.__penstock_there__ = True  # type: ignore[attr-defined]  # a mark on the function
    builtins.open = open
    io.open = open
