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
from pathlib import PurePath
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from penstock.crds import environment as names
from penstock.data.code_parts import code_parts, names_in

MOST_FUNCTIONS: Final = 256
MOST_DEPTH: Final = 32
"""Of containers in one another."""
MOST_VALUES: Final = 1 << 18
"""Of one container: to look at more takes longer than a second."""
MOST_BYTES: Final = 64 << 20
"""Of one array."""
_PLAIN: Final = (int, float, complex, str, bytes, bool, type(None), range, PurePath)
_CONTAINERS: Final = (tuple, list, dict, set, frozenset)


def function_digest(function: Any, environ: Mapping[str, str] = os.environ) -> bytes | None:
    """32 bytes; None: more leads from it than is looked at, or something that has no code.

    They are of the job alone that holds a token: nobody else can name what it keeps.
    """
    try:
        found = _summed(_parts(function, set()))
    except Exception:  # noqa: BLE001 - what code names may be anything, and raise anything
        return None
    secret = environ.get(names.JOB_TOKEN, "").encode()
    return hmac.digest(hashlib.sha256(secret).digest(), found, "sha256")


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
    yield from code_parts(function.__code__, _constant)
    yield from _value(function.__defaults__, seen)
    yield from _value(function.__kwdefaults__, seen)
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # it has none yet
            raise _UnknownError from None
        yield from _value(content, seen)
    for name in sorted(names_in(function.__code__)):
        if name in function.__globals__:
            yield name.encode()
            yield from _value(function.__globals__[name], seen)


def _constant(value: Any) -> Iterator[bytes]:
    yield repr(value).encode()


def _value(value: Any, seen: set[int], depth: int = 0) -> Iterator[bytes]:
    """What code names: constants by what they are, code by what it does, others by their kind."""
    if depth > MOST_DEPTH:
        raise _UnknownError
    kind = type(value)
    if isinstance(value, _PLAIN):
        yield repr((kind.__name__, value)).encode()
    elif isinstance(value, _CONTAINERS):
        if len(value) > MOST_VALUES:
            raise _UnknownError
        yield f"{kind.__name__} of {len(value)}".encode()
        inner = value.items() if isinstance(value, dict) else value
        parts = [_summed(_value(one, seen, depth + 1)) for one in inner]
        yield from sorted(parts) if isinstance(value, set | frozenset) else parts
    elif isinstance(value, FunctionType):
        yield from _function(value, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__.encode()
        yield _version(value.__name__)
    elif (array := _array(value)) is not None:
        yield f"{kind.__qualname__} {array[0]}".encode()
        yield array[1]
    else:
        if not isinstance(value, type):
            value = kind
        yield f"{value.__module__}.{value.__qualname__}".encode()
        yield _version(value.__module__)


def _array(value: Any) -> tuple[str, bytes] | None:
    """Type, shape and numbers of an array or a tensor; None: it is none."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.nbytes > MOST_BYTES:
            raise _UnknownError
        flat = value.detach().cpu().contiguous().reshape(-1)
        # NumPy has not all of its types.
        return f"{value.dtype} {tuple(value.shape)}", flat.view(torch.uint8).numpy().tobytes()
    if not hasattr(value, "__array_interface__"):
        return None
    array = np.asarray(value)
    if array.nbytes > MOST_BYTES or array.dtype.hasobject:
        raise _UnknownError
    return f"{array.dtype.str} {array.shape}", array.tobytes()


def _summed(parts: Iterator[bytes]) -> bytes:
    found = hashlib.blake2b(digest_size=32)
    for part in parts:
        found.update(f"{len(part)} ".encode() + part)
    return found.digest()


def _version(module: str | None) -> bytes:
    """Of the package that a module is of."""
    package = sys.modules.get((module or "").partition(".")[0])
    return str(getattr(package, "__version__", "")).encode()
