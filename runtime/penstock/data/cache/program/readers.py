"""Readers that open files in C, by path: replaced by what they do to bytes in memory.

Each is replaced when its module is imported, or at once if it has been. The result is the same, bit
by bit: the function that decodes memory is the library's own. Those that map a file, or keep it
open as a database, are left alone, and counted as not seen by the cache.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from penstock.data.cache.program.files import CachedFile


class Opener(Protocol):
    """What opens files through the cache."""

    def open_raw(self, file: Any) -> CachedFile | None:
        """A file for reading; None: it is not below the cache's paths."""

    def note_unseen(self, file: Any) -> None:
        """Something else reads a file; it is counted if it is below the paths."""


Replace = Callable[[ModuleType, Opener], None]

_undo: list[Callable[[], None]] = []


def content(one: Opener, file: Any) -> bytes | None:
    """All of a file, by way of the cache; None: not below its paths, or it cannot be read."""
    if not isinstance(file, str | bytes | os.PathLike):
        return None
    try:
        raw = one.open_raw(file)
        if raw is None:
            return None
        with raw:
            return raw.readall()
    except OSError:
        return None  # the reader itself says what is wrong


def put(holder: Any, name: str, value: Any) -> None:
    """Replace an attribute; `uninstall_readers` puts it back."""
    before = getattr(holder, name)
    setattr(holder, name, value)
    _undo.append(lambda: setattr(holder, name, before))


def _replace_numpy(numpy: ModuleType, one: Opener) -> None:
    from penstock.data.cache.program.files import CachedFile

    plain = numpy.fromfile

    def fromfile(
        file: Any,
        dtype: Any = float,
        count: int = -1,
        sep: str = "",
        offset: int = 0,
        **others: Any,
    ) -> Any:
        found = None
        if not sep and not others and isinstance(file, str | bytes | os.PathLike):
            with contextlib.suppress(OSError):  # the reader itself says what is wrong
                found = _array(numpy, one, file, numpy.dtype(dtype), count, offset)
        if found is None:
            return plain(file, dtype, count, sep, offset=offset, **others)
        return found

    put(numpy, "fromfile", fromfile)
    for name in ("numpy.lib._format_impl", "numpy.lib.format"):  # of NumPy 2.3, and before
        module = sys.modules.get(name)
        if module is not None and "isfileobj" in vars(module):
            put(module, "isfileobj", _not_cached(module.isfileobj, CachedFile))


def _array(
    numpy: ModuleType, one: Opener, file: Any, kind: Any, count: int, offset: int
) -> Any | None:
    """So many items of a file from there, all if negative; None: it is for NumPy to read, or say.

    Raises:
        OSError: it cannot be read.
    """
    from penstock.data.cache.program.files import MOST_BYTES

    if not kind.itemsize or kind.hasobject or offset < 0:
        return None
    raw = one.open_raw(file)
    if raw is None:
        return None
    with raw:
        left = raw.seek(0, os.SEEK_END) - offset
        if left < 0 or count * kind.itemsize > left:
            return None
        wanted = count if count >= 0 else left // kind.itemsize
        if wanted * kind.itemsize > MOST_BYTES:
            one.note_unseen(file)
            return None
        found = numpy.empty(wanted, kind)
        room = memoryview(found.reshape(-1).view(numpy.uint8)) if wanted else memoryview(b"")
        raw.seek(offset)
        while room:
            got = raw.readinto(room)
            if not got:
                return None  # it is shorter now
            room = room[got:]
    return found


def _not_cached(plain: Callable[[Any], bool], cached: type) -> Callable[[Any], bool]:
    """``np.load`` reads a real file by its descriptor; one of ours it is to read as any other."""

    def isfileobj(file: Any) -> bool:
        return not isinstance(getattr(file, "raw", None), cached) and plain(file)

    return isfileobj


def _replace_cv2(cv2: ModuleType, one: Opener) -> None:
    import numpy as np

    plain = cv2.imread

    def imread(filename: Any, *others: Any, **named: Any) -> Any:
        flags = others[0] if others else named.get("flags", cv2.IMREAD_COLOR)
        whole = content(one, filename) if len(others) < 2 and not set(named) - {"flags"} else None
        by_gdal = flags > 0 and flags & getattr(cv2, "IMREAD_LOAD_GDAL", 8)
        if not whole or by_gdal:
            return plain(filename, *others, **named)
        return cv2.imdecode(np.frombuffer(whole, np.uint8), flags)

    put(cv2, "imread", imread)


def _replace_torchvision(image: ModuleType, one: Opener) -> None:
    import torch

    plain = image.read_file

    def read_file(path: Any) -> Any:
        whole = content(one, path)
        if not whole:
            return plain(path)
        return torch.frombuffer(bytearray(whole), dtype=torch.uint8)

    # ``read_image``, and ``decode_image`` of a path, call it by its name in their module.
    put(image, "read_file", read_file)
    package = sys.modules.get("torchvision.io")
    if package is not None and hasattr(package, "read_file"):
        put(package, "read_file", read_file)


def _counted(name: str, parameter: str) -> Replace:
    """Count what a function opens, its first argument of that name, and leave it alone."""

    def replace(module: ModuleType, one: Opener) -> None:
        plain = getattr(module, name)

        def opened(*given: Any, **named: Any) -> Any:
            one.note_unseen(given[0] if given else named.get(parameter))
            return plain(*given, **named)

        put(module, name, opened)

    return replace


def _count_h5py(h5py: ModuleType, one: Opener) -> None:
    plain = h5py.File.__init__

    def begin(self: Any, name: Any, *others: Any, **named: Any) -> None:
        one.note_unseen(name)
        plain(self, name, *others, **named)

    put(h5py.File, "__init__", begin)


READERS: Final[dict[str, Replace]] = {
    "numpy": _replace_numpy,
    "cv2": _replace_cv2,
    "torchvision.io.image": _replace_torchvision,
    "h5py": _count_h5py,
    "lmdb": _counted("open", "path"),
    "sqlite3": _counted("connect", "database"),
}


class _Watch(MetaPathFinder):
    """A finder that finds nothing itself: it acts when a module that it waits for is there."""

    def __init__(self, waiting: dict[str, Replace], one: Opener) -> None:
        self._waiting = waiting
        self._one = one
        self._searching = ""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._waiting or name == self._searching:
            return None
        from importlib.util import find_spec

        self._searching = name
        try:
            spec = find_spec(name)
        finally:
            self._searching = ""
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            act = self._waiting.pop(name, None)
            execute(module)
            if act is not None:
                replace(act, module, self._one)

        # The loader's method is wrapped on purpose.
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def replace(act: Replace, module: ModuleType, one: Opener) -> None:
    """Replace a module's readers, as far as it has those that are known."""
    try:
        act(module, one)
    except (AttributeError, ImportError, TypeError) as error:  # another release of it
        sys.stderr.write(f"penstock: the cache does not see {module.__name__}: {error}\n")


def install_readers(one: Opener) -> None:
    """Replace the readers of modules that are imported, and of others when they are."""
    waiting = dict(READERS)
    for name in list(waiting):
        module = sys.modules.get(name)
        if module is not None:
            replace(waiting.pop(name), module, one)
    watch = _Watch(waiting, one)
    sys.meta_path.insert(0, watch)
    _undo.append(lambda: sys.meta_path.remove(watch))


def uninstall_readers() -> None:
    """Put back what was replaced."""
    while _undo:
        _undo.pop()()
