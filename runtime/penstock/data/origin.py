"""Where a pipeline comes from: the program's folder, arguments and modules.

Classes of modules are pickled by their names, and files may be named from a folder. A data worker
that serves several programs, or lives longer than one, may have read a module before it was edited,
or be in another folder: what it made would be something else, and mostly nobody would see it. So a
pipeline says what code its classes and functions have where it comes from, and whether it names
files from its folder; whoever opens it has the same, or refuses by name.

Code is what is loaded, not the files that it was read from: of the classes and functions that are
pickled by name, and of those of the program's own modules that these name in turn, with their
constants, and what is named in capitals. Libraries are not looked at.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickletools
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple, Self

import msgpack

from penstock.data.code_parts import code_parts, names_in
from penstock.data.errors import NotPortableError

MAX_FUNCTIONS: Final = 5000
"""That are looked at of what one name leads to."""
MAX_ITEMS: Final = 10_000
"""Of a constant that are looked at."""
SCANNED_BYTES: Final = 1 << 20
"""Of a pickled pipeline: whoever names files so does it from its first attributes on."""
MAX_PATH: Final = 4096
_PLAIN: Final = (int, float, complex, str, bytes, bool, type(None))
_OURS: Final = "penstock"


class Origin(NamedTuple):
    """See the module's docstring.

    Attributes:
        path: where modules are found.
        folder: of the program.
        arguments: of the program.
        relative: files are named from the folder, as far as that can be seen.
        code: a digest of each ``module:name`` of the program's own that is pickled by its name.
    """

    path: list[str]
    folder: str
    arguments: list[str]
    relative: bool
    code: dict[str, bytes]

    @classmethod
    def here(cls, named: Iterable[str], blob: bytes | memoryview) -> Self:
        """This process as an origin of what was pickled as ``blob``, with these names."""
        code, texts = _code_of(named)
        folder = str(Path.cwd())
        return cls(sys.path, folder, sys.argv, _names_files(texts, blob), code)

    def packed(self) -> bytes:
        """For a message."""
        packed: bytes = msgpack.packb(list(self))
        return packed

    @classmethod
    def unpacked(cls, packed: bytes | memoryview) -> Self:
        """What `packed` gave."""
        return cls(*msgpack.unpackb(packed))

    def take(self, *, whole: bool) -> None:
        """Be such a place, as far as it exists here.

        Modules, and with ``whole`` relative files, and the program's arguments, which datasets of
        scripts read.

        Raises:
            NotPortableError: files are named from a folder, and this process stays in another.
        """
        sys.path.extend(one for one in self.path if one not in sys.path and Path(one).exists())
        if whole:
            sys.argv[:] = self.arguments
            if Path(self.folder).is_dir():
                os.chdir(self.folder)
        elif self.relative and self.folder != str(Path.cwd()) and Path(self.folder).is_dir():
            raise NotPortableError(
                f"it names files from the folder {self.folder}, and this data worker serves a "
                f"program in {Path.cwd()}: start both in one folder, or name files from /"
            )

    def check_code(self) -> None:
        """Raises NotPortableError: a class or function has another code here."""
        here, _ = _code_of(self.code)
        for name, digest in self.code.items():
            if name in here and here[name] != digest:
                raise NotPortableError(
                    f"the code of {name.replace(':', '.')} is another here: it was changed after "
                    "this data worker had read its module, or comes from another folder"
                )


def place_digest(named: Iterable[str], blob: bytes | memoryview) -> bytes:
    """Of what a pipeline depends on beside its pickled form; the same in all such places."""
    origin = Origin.here(named, blob)
    told = [sorted(origin.code.items()), origin.folder if origin.relative else ""]
    return hashlib.blake2b(msgpack.packb(told), digest_size=32).digest()


def note_name(value: Any, found: set[str]) -> None:
    """Add the name by which a value is pickled, if it is one that has code."""
    if isinstance(value, ModuleType):
        found.add(f"{value.__name__}:")
    elif isinstance(value, type | FunctionType):
        found.add(f"{value.__module__}:{value.__qualname__}")


@functools.cache
def _libraries() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {os.path.realpath(sysconfig.get_path(name)) for name in names}
    return tuple(f"{folder}{os.sep}" for folder in sorted(folders))


@functools.lru_cache(4096)
def _is_own(name: str, file: str | None) -> bool:
    if file is None or name == "__main__" or name.partition(".")[0] == _OURS:
        return False
    return not os.path.realpath(file).startswith(_libraries())


def _own(name: str | None) -> ModuleType | None:
    """A module of the program's own that others find by its name; None: it is something else."""
    module = sys.modules.get(name or "")
    file = getattr(module, "__file__", None)
    own = isinstance(name, str) and _is_own(name, file if isinstance(file, str) else None)
    return module if own else None


def _code_of(named: Iterable[str]) -> tuple[dict[str, bytes], set[str]]:
    """Digests of what is named, and the texts in its code."""
    found: dict[str, bytes] = {}
    texts: set[str] = set()
    for name in named:
        where, _, path = name.partition(":")
        value: Any = _own(where)
        for part in path.split(".") if value is not None and path else ():
            value = getattr(value, part, None)  # of a local class there is none
        if value is not None:
            digest = hashlib.blake2b(digest_size=16)
            for piece in _Reading(texts).of(value):
                digest.update(f"{len(piece)} ".encode() + piece)
            found[name] = digest.digest()
    return found, texts


class _Reading:
    """What the code of a value is, and of what it names in turn."""

    def __init__(self, texts: set[str]) -> None:
        self._texts = texts
        self._seen: set[int] = set()
        self._within: set[int] = set()  # containers that are being read

    def of(self, value: Any) -> Iterator[bytes]:
        """Its parts."""
        if isinstance(value, _PLAIN):
            if isinstance(value, str):
                self._texts.add(value)
            yield repr((type(value).__name__, value)).encode()
        elif type(value) in {tuple, list, dict}:
            yield f"{type(value).__name__} {len(value)}".encode()
            if len(value) <= MAX_ITEMS and id(value) not in self._within:
                self._within.add(id(value))
                for one in value.items() if isinstance(value, dict) else value:
                    yield from self.of(one)
                self._within.discard(id(value))
        elif type(value) in {frozenset, set}:
            yield from sorted(repr(one).encode() for one in value if isinstance(one, _PLAIN))
        elif isinstance(value, type):
            yield from self._class(value)
        elif (function := _function_of(value)) is not None:
            yield from self._function(function)
        elif isinstance(value, ModuleType):
            yield from self._module(value)
        else:
            yield from self._class(type(value))

    def _begin(self, value: Any, module: str | None) -> bool:
        """Whether a class, function or module is to be read, for the first time."""
        if _own(module) is None or id(value) in self._seen or len(self._seen) >= MAX_FUNCTIONS:
            return False
        self._seen.add(id(value))
        return True

    def _module(self, module: ModuleType) -> Iterator[bytes]:
        yield module.__name__.encode()
        if self._begin(module, module.__name__):
            for name, value in sorted(dict(vars(module)).items()):
                if _is_code(value) or name.isupper():
                    yield name.encode()
                    yield from self.of(value)

    def _class(self, kind: type) -> Iterator[bytes]:
        yield f"{kind.__module__}.{kind.__qualname__}".encode()
        if not self._begin(kind, kind.__module__):
            return
        for base in kind.__mro__[1:]:
            yield from self._class(base)
        for name, value in sorted(vars(kind).items()):
            for part in _parts(value):
                if _function_of(part) is None and name.startswith("__"):
                    continue
                yield name.encode()
                yield from self.of(part)

    def _function(self, function: FunctionType) -> Iterator[bytes]:
        yield f"{function.__module__}.{function.__qualname__}".encode()
        if (inner := _function_of(vars(function).get("__wrapped__"))) is not None:
            yield from self._function(inner)
        if not self._begin(function, function.__module__):
            return
        names = sorted(names_in(function.__code__))
        yield from code_parts(function.__code__, self.of)
        yield from self.of(function.__defaults__)
        yield from self.of(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # it is empty
                yield from self.of(cell.cell_contents)
        for name in names:
            value = function.__globals__.get(name)
            if isinstance(value, ModuleType):
                if _own(value.__name__) is not None:
                    yield from self._named(dict(vars(value)), names)
            elif _is_code(value) or name.isupper():
                yield name.encode()
                yield from self.of(value)

    def _named(self, values: dict[str, Any], names: list[str]) -> Iterator[bytes]:
        """Of a module that code names, what it may take from there."""
        for name in names:
            if name in values and (_is_code(values[name]) or name.isupper()):
                yield name.encode()
                yield from self.of(values[name])


def _is_code(value: Any) -> bool:
    return isinstance(value, type) or _function_of(value) is not None


def _function_of(value: Any) -> FunctionType | None:
    """The function that a value is, or that a decorator has as `functools.wraps` leaves it."""
    if isinstance(value, FunctionType):
        return value
    if isinstance(value, functools._lru_cache_wrapper):
        return _function_of(value.__wrapped__)
    return None


def _parts(value: Any) -> list[Any]:
    """What an attribute of a class is made of."""
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [one for one in (value.fget, value.fset, value.fdel) if one is not None]
    if isinstance(value, functools.cached_property):
        return [value.func]
    return [value]


def _names_files(texts: Iterable[str], blob: bytes | memoryview) -> bool:
    """Whether one of these texts, or of those at the beginning of a pickle, names a file here."""
    seen = {text for text in texts if _names_file(text)}
    return bool(seen) or any(_names_file(text) for text in _pickled(blob))


def _pickled(blob: bytes | memoryview) -> Iterator[str]:
    with contextlib.suppress(ValueError, IndexError, UnicodeDecodeError):  # it ends in the middle
        for _, value, _ in pickletools.genops(bytes(blob[:SCANNED_BYTES])):
            if isinstance(value, str):
                yield value


def _names_file(text: str) -> bool:
    if not text or len(text) > MAX_PATH or text.startswith("/") or "\0" in text:
        return False
    try:
        return os.path.lexists(text)
    except (OSError, ValueError):
        return False
