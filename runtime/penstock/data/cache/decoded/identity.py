"""What a function is known by: its code, and the constants and functions that it names.

Two functions of one name share nothing that is kept unless they do the same, as far as code says
it; what code cannot say, as a variable that somebody sets, is for comparing results.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from penstock.crds import environment as names

MOST_FUNCTIONS: Final = 256
_PLAIN: Final = (int, float, complex, str, bytes, bool, type(None))


def function_digest(function: Any, environ: Mapping[str, str] = os.environ) -> bytes | None:
    """32 bytes; None: more leads from it than is looked at, or something that has no code.

    They are of the job alone that holds a token: nobody else can name what it keeps.
    """
    found = hashlib.blake2b(digest_size=32)
    seen: set[int] = set()
    try:
        for part in _parts(function, seen):
            found.update(f"{len(part)} ".encode() + part)
    except _UnknownError:
        return None
    secret = environ.get(names.JOB_TOKEN, "").encode()
    return hmac.digest(hashlib.sha256(secret).digest(), found.digest(), "sha256")


class _UnknownError(Exception):
    """Of something it cannot be said what it does."""


def _parts(function: Any, seen: set[int]) -> Iterator[bytes]:
    yield platform.python_version().encode()
    if isinstance(function, FunctionType):
        yield from _function(function, seen)
        return
    if isinstance(function, MethodType):
        raise _UnknownError  # what it is bound to may be anything
    call = vars(type(function)).get("__call__")
    if not isinstance(call, FunctionType):
        raise _UnknownError
    yield from _function(call, seen)
    yield from _value(getattr(function, "__dict__", {}), seen)


def _function(function: FunctionType, seen: set[int]) -> Iterator[bytes]:
    if id(function) in seen:
        return
    seen.add(id(function))
    if len(seen) > MOST_FUNCTIONS:
        raise _UnknownError
    yield f"{function.__module__}.{function.__qualname__}".encode()
    yield _version(function.__module__)
    yield from _code(function.__code__)
    yield from _value(function.__defaults__, seen)
    yield from _value(function.__kwdefaults__, seen)
    for cell in function.__closure__ or ():
        yield from _value(cell.cell_contents, seen)
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name.encode()
            yield from _value(function.__globals__[name], seen)


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_flags)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(constant).encode()


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _value(value: Any, seen: set[int]) -> Iterator[bytes]:
    """What code names: constants by what they are, code by what it does, others by their kind."""
    if isinstance(value, _PLAIN):
        yield repr((type(value).__name__, value)).encode()
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _value(one, seen)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield repr(key).encode()
            yield from _value(one, seen)
    elif isinstance(value, FunctionType):
        yield from _function(value, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__.encode()
        yield _version(value.__name__)
    elif hasattr(value, "__array_interface__"):
        yield value.tobytes()
    else:
        kind = value if isinstance(value, type) else type(value)
        yield f"{kind.__module__}.{kind.__qualname__}".encode()
        yield _version(kind.__module__)


def _version(module: str | None) -> bytes:
    """Of the package that a module is of."""
    package = sys.modules.get((module or "").partition(".")[0])
    return str(getattr(package, "__version__", "")).encode()
