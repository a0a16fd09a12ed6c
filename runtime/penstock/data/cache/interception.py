"""Have the files that a program opens for reading, below some paths, come from the node's cache.

``builtins.open`` and ``io.open`` are replaced: pathlib, PIL, numpy, json and torch.load go through
them. ``os.open`` is as it was, and counted: who reads by a descriptor reads from storage. What C
code opens by path is in `penstock.data.cache.program.readers`. Only read modes, and only below the
paths; whatever else is asked for goes to the function that was there before, at the cost of one
comparison. This module is loaded at the start of a program: what the cache needs besides is loaded
with the first file below its paths.
"""

from __future__ import annotations

import builtins
import io
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from penstock.base.enums import CacheForm
from penstock.crds import environment as names
from penstock.data.kept import provide

if TYPE_CHECKING:
    from penstock.data.cache.client import CacheClient
    from penstock.data.cache.decoded.functions import KeptFunctions
    from penstock.data.cache.program.files import CachedFile

_READING: Final = frozenset({"r", "rb", "br", "rt", "tr"})
_BINARY: Final = frozenset({"rb", "br"})
_NO_READING: Final = os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY | os.O_PATH


class Interception:
    """What is replaced in this process, and by what."""

    def __init__(self, place: str, paths: Sequence[str], form: CacheForm = CacheForm.RAW) -> None:
        """``place``: the daemon's socket; ``form``: what is kept of files."""
        self.place = place
        self.form = form
        self._functions: KeptFunctions | None = None
        self._bypass = threading.local()
        self._roots: dict[str, str] = {}  # how a path may be written, and how the cache calls it
        for path in paths:
            plain = path.rstrip("/") or "/"
            for written in (os.path.abspath(plain), os.path.realpath(plain)):  # noqa: PTH100 - pathlib is not loaded yet
                self._roots.setdefault(written.rstrip("/") + "/", path)
        self._prefixes = tuple(sorted(self._roots, key=len, reverse=True))
        self._client: CacheClient | None = None
        self._lock = threading.Lock()
        self.plain: Callable[..., Any] = builtins.open
        self.plain_descriptor: Callable[..., int] = os.open
        os.register_at_fork(after_in_child=self._begin_in_child)

    def _begin_in_child(self) -> None:
        self._lock = threading.Lock()  # a thread of the parent may have held it

    @property
    def client(self) -> CacheClient:
        """The connection to the daemon; made when it is first asked for."""
        if self._client is None:
            with self._lock:
                if self._client is None:
                    import atexit

                    from penstock.data.cache.client import CacheClient

                    self._client = CacheClient(self.place)
                    atexit.register(self._client.send_notes)
        return self._client

    @property
    def functions(self) -> KeptFunctions | None:
        """The functions whose results are kept; None: files are kept as they are."""
        if self.form is CacheForm.DECODED and self._functions is None:
            from penstock.data.cache.decoded.functions import KeptFunctions

            self._functions = KeptFunctions(self)
        return self._functions

    @contextmanager
    def bypassed(self) -> Iterator[None]:
        """Have this thread read files as without a cache: what is made of them is kept instead."""
        before, self._bypass.on = getattr(self._bypass, "on", False), True
        try:
            yield
        finally:
            self._bypass.on = before

    def below(self, file: Any) -> tuple[str, str] | None:
        """The path of the cache that a file is below, and its name from there; None: outside."""
        if type(file) is not str:
            if isinstance(file, int):
                return None
            try:
                file = os.fsdecode(file)
            except (TypeError, ValueError):
                return None
        if file[:1] != "/":
            if not file:
                return None
            try:
                file = f"{os.getcwd()}/{file}"  # noqa: PTH109 - on every open of a relative path
            except OSError:
                return None
            if "./" not in file and not file.startswith(self._prefixes):
                return None
        elif not file.startswith(self._prefixes):
            return None
        name = os.path.normpath(file) if "/." in file or "//" in file else file
        for prefix in self._prefixes:
            if name.startswith(prefix):
                return self._roots[prefix], name[len(prefix) :]
        return None

    def _seen(self, file: Any) -> tuple[str, str] | None:
        """As `below`, of a file that is read through the cache."""
        place = self.below(file)
        return None if place is None or getattr(self._bypass, "on", False) else place

    def open_raw(self, file: Any) -> CachedFile | None:
        """A file for reading whose bytes come from the cache; None: it is not below its paths.

        Raises:
            OSError: as ``open``.
        """
        place = self._seen(file)
        if place is None:
            return None
        return self._raw(os.fspath(file), place)

    def _raw(self, file: str | bytes, place: tuple[str, str]) -> CachedFile:
        from penstock.data.cache.program.files import CachedFile
        from penstock.data.cache.source import CacheSource

        return CachedFile(file, CacheSource(self.client, *place))

    def note_unseen(self, file: Any) -> None:
        """Something else than ``open`` reads a file; it is counted if it is below the paths."""
        place = self.below(file)
        if place is not None:
            self.client.note_unseen(place[0])

    def open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """As ``builtins.open``."""
        place = self._seen(file)
        if place is None or mode not in _READING:
            return self.plain(file, mode, buffering, encoding, errors, newline, closefd, opener)
        binary = mode in _BINARY
        text_only = encoding is not None or errors is not None or newline is not None
        if buffering == 0 or (binary and (buffering == 1 or text_only)) or opener or not closefd:
            self.client.note_unseen(place[0])
            with self.bypassed():  # an opener is not counted for itself
                return self.plain(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = self._raw(os.fspath(file), place)
        try:
            buffered = io.BufferedReader(raw, buffering if buffering > 1 else raw.block_bytes)
            if binary:
                return buffered
            text: Any = io.TextIOWrapper(
                buffered, io.text_encoding(encoding), errors, newline, buffering == 1
            )
            text.mode = mode  # as ``open`` does
            return text
        except BaseException:
            raw.close()
            raise


_installed: list[Interception] = []


def install(place: str, paths: Sequence[str], form: CacheForm = CacheForm.RAW) -> Interception:
    """Replace what opens files in this process; a second time: with another cache."""
    uninstall()
    one = Interception(place, paths, form)
    opened = _function(one)
    builtins.open = opened
    io.open = opened
    os.open = _descriptor_function(one)
    _installed.append(one)
    from penstock.data.cache.program.readers import install_readers

    install_readers(one)
    provide(_functions_now)
    return one


def _function(one: Interception) -> Callable[..., Any]:
    """``open`` as a plain function: whoever puts it into a class must not get a method."""
    plain, prefixes = one.plain, one._prefixes
    intercepted = one.open

    # All arguments by their place: to pass them on by name costs more than the comparison.
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
        outside = type(file) is str and file.startswith("/") and not file.startswith(prefixes)
        chosen = plain if outside else intercepted
        return chosen(file, mode, buffering, encoding, errors, newline, closefd, opener)

    open.__doc__ = plain.__doc__
    return open


def _descriptor_function(one: Interception) -> Callable[..., int]:
    """``os.open``, which counts what is read below the paths."""
    plain, prefixes = one.plain_descriptor, one._prefixes

    def open(  # noqa: A001 - it is that
        path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        descriptor = plain(path, flags, mode, dir_fd=dir_fd)
        outside = type(path) is str and path.startswith("/") and not path.startswith(prefixes)
        if not outside and not flags & _NO_READING and dir_fd is None:
            place = one._seen(path)
            if place is not None:
                one.client.note_unseen(place[0])
        return descriptor

    open.__doc__ = plain.__doc__
    return open


def uninstall() -> None:
    """Put back what was there before; for tests."""
    while _installed:
        one = _installed.pop()
        builtins.open = one.plain
        io.open = one.plain
        os.open = one.plain_descriptor
        from penstock.data.cache.program.readers import uninstall_readers

        uninstall_readers()


def _functions_now() -> KeptFunctions | None:
    return _installed[-1].functions if _installed else None


def installed() -> Interception | None:
    """What is replaced in this process, if anything is."""
    return _installed[-1] if _installed else None


def install_from(environ: Mapping[str, str]) -> Interception | None:
    """Do what the environment says; None where it says nothing of a cache."""
    place, paths = environ.get(names.CACHE_SOCKET, ""), environ.get(names.CACHE_PATHS, "")
    folders = [one for one in paths.split(os.pathsep) if one]
    decoded = environ.get(names.CACHE_FORM) == CacheForm.DECODED
    form = CacheForm.DECODED if decoded else CacheForm.RAW
    return install(place, folders, form) if place and folders else None
