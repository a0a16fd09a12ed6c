"""What a function can read: the tensors, modules and generators that it leads to.

Followed are the attributes of objects, closures, default values, and those globals, and attributes
of imported modules, whose names are in the function's code. Installed libraries are not: what their
functions read is not seen, and numbers that their objects count, or caches that they fill, are no
state of the program. Nor is seen what is reached by a name that is looked up as text. Comparing
results is there for that.
"""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch

MAX_OBJECTS: Final = 100_000
_GENERATORS: Final = (
    torch.Generator,
    random.Random,
    np.random.Generator,
    np.random.BitGenerator,
    np.random.RandomState,
)
_PLAIN: Final = (bool, int, float, str, bytes, type(None))
_LIBRARY_FOLDERS: Final = ("site-packages", "dist-packages")
_OWN_GROUPS: Final = ("_parameters", "_buffers", "_modules")


class Reachable:
    """What was found.

    Attributes:
        tensors: with the names by which they were reached.
        modules: likewise.
        generators: the names of random generators.
        plain: numbers, texts, and the lengths of lists, dicts and sets, by name, of what is the
            program's own.
        complete: not so where there was more than is looked at.
    """

    def __init__(self, root: Any) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.modules: dict[str, torch.nn.Module] = {}
        self.generators: list[str] = []
        self.plain: dict[str, Any] = {}
        self.complete = True
        self._kept: list[Any] = []  # so that no id is used twice
        seen: set[int] = set()
        waiting: list[tuple[str, Any, bool]] = [("", root, True)]
        while waiting:
            name, value, own = waiting.pop()
            if isinstance(value, _PLAIN):
                if own:
                    self.plain[name] = value
                continue
            if id(value) in seen:
                continue
            if len(seen) == MAX_OBJECTS:
                self.complete = False
                return
            seen.add(id(value))
            self._kept.append(value)
            waiting += self._look(name, value, own=own)

    def _look(self, name: str, value: Any, *, own: bool) -> list[tuple[str, Any, bool]]:
        if isinstance(value, torch.Tensor):
            self.tensors[name] = value
            return []
        if isinstance(value, _GENERATORS):
            self.generators.append(name)
            return []
        if isinstance(value, list | tuple | set | frozenset | dict):
            if own:
                self.plain[name] = len(value)
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            return [(f"{name}[{key!r:.40}]", one, own) for key, one in pairs]
        if type(value).__module__.startswith(__package__):
            return []  # what a declared module has of ours
        if isinstance(value, torch.nn.Module):
            self.modules[name] = value
        own = not _of_library(type(value)) or isinstance(value, types.FunctionType)
        return [(f"{name}.{of}" if name else of, one, own) for of, one in _inside(value)]


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.MethodType):
        yield "__self__", value.__self__
        value = value.__func__
    if isinstance(value, types.FunctionType):
        yield from _of_function(value)
        return
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        return
    if isinstance(value, torch.nn.Module):
        yield from _of_function(type(value).forward)
        for group in _OWN_GROUPS:
            yield from getattr(value, group).items()
    else:
        yield from _of_function(vars(type(value)).get("__call__"))
    for name, inner in list(getattr(value, "__dict__", {}).items()):
        if name not in _OWN_GROUPS:
            yield name, inner


def _of_function(function: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(function, types.FunctionType) or _of_library(function):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is empty still
            continue
    for number, value in enumerate(function.__defaults__ or ()):
        yield f"default {number}", value
    yield from (function.__kwdefaults__ or {}).items()
    names = set(_names(function.__code__))
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        if not isinstance(value, types.ModuleType):
            yield name, value
        elif not _of_library(value):
            yield from ((f"{name}.{one}", vars(value)[one]) for one in names & vars(value).keys())


def _of_library(value: Any) -> bool:
    """Whether a module, class or function is of an installed library, or of Python's."""
    module = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    if (module or "").split(".")[0] in sys.stdlib_module_names | {"penstock"}:
        return module != "__main__"
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return any(folder in file for folder in _LIBRARY_FOLDERS)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
