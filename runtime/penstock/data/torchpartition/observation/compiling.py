"""What a program compiles while its steps are looked at: its functions get a door.

`torch.compile` makes code for the values that a function is called with. One that is compiled and
called within a step would be compiled for tensors that are looked at: PyTorch's compiler would
follow their calls to whoever looks, and the code would not be what the program has alone. So what
is compiled meanwhile gets plain tensors, as compiled modules do
(`penstock.data.torchpartition.observation.modules`).

`torch.compile` and PyTorch's compiler are put back when nobody looks any more; a door stays.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from penstock.data.torchpartition.observation.deferred import first_deferred

_COMPILER: Final = "torch._dynamo.eval_frame"


@dataclass
class _Plain:
    """What is replaced, as it was; None: it is not replaced."""

    compile: Any = None
    call: Any = None
    unwatched: Any = None


_plain: Final = _Plain()


def watch_compiling(unwatched: Callable[..., Any]) -> None:
    """From now on functions that are compiled have a door.

    ``unwatched(function, *args, **kwargs)``: calls one, with modules as they are.
    """
    _plain.unwatched = unwatched
    if _COMPILER in sys.modules:
        _watch_compiler()
    else:
        _plain.compile = torch.compile
        torch.compile = _compile


def unwatch_compiling() -> None:
    """See `watch_compiling`; what others have put into its place in the meantime stays."""
    if _plain.compile is not None and torch.compile is _compile:
        torch.compile = _plain.compile
    if _plain.call is not None and (context := _context()).__call__ is _call:
        context.__call__ = _plain.call
    _plain.compile = _plain.call = None


def _context() -> Any:
    """The class of what `torch.compile` calls with a function; it loads the compiler."""
    return importlib.import_module(_COMPILER).OptimizeContext


def _watch_compiler() -> None:
    context = _context()
    _plain.call = context.__call__
    context.__call__ = _call


def _compile(*args: Any, **kwargs: Any) -> Any:
    """The first call of it loads the compiler, which takes as long here as it does there."""
    if _plain.compile is None:  # somebody has kept this one
        return torch.compile(*args, **kwargs)
    if _plain.call is None:
        _watch_compiler()
    return _plain.compile(*args, **kwargs)


def _call(self: Any, function: Any) -> Any:
    made = _plain.unwatched(_plain.call, self, function)  # a module's own call is compiled
    return _with_door(made, _plain.unwatched) if isinstance(made, types.FunctionType) else made


def _with_door(compiled: Any, unwatched: Callable[..., Any]) -> Any:
    """A compiled function that is called with plain tensors, of which its step is told."""
    run = functools.partial(unwatched, compiled)

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = first_deferred((args, kwargs))
        if found is None:
            return run(*args, **kwargs)
        return found._step.call("", run, args, kwargs)

    return call
