"""``encode = penstock.data.offload(encode)``: a function that is stateless by the program's word.

Under ``penstock run`` data workers call it, steps ahead, on the batches that they make; the
program's own call then returns what came with the batch. That is the same bit by bit, which is
compared before anything is used and now and then afterwards. Without ``penstock run`` nothing is
different at all.
"""

from __future__ import annotations

import os
from typing import Any, Final, TypeVar, cast

import torch

from penstock.base.enums import Partition
from penstock.data.hooked import INTERCEPT
from penstock.data.offloading.loader_calls import Function, call_declared, declare
from penstock.data.variables import PARTITION

BATCH: Final = "batch"
Offloadable = TypeVar("Offloadable")


def offload(function: Offloadable, *, random: str | None = None) -> Offloadable:
    """Have data workers call a stateless function on the batches that they make.

    A module (`torch.nn.Module`) is returned itself, its ``forward`` replaced; of any other callable
    something that has its attributes and calls it. Both have ``offloaded``, which counts ``calls``
    and those that were ``moved`` and ``compared``, and says ``why`` it stays in the program if it
    does.

    Args:
        function: a frozen module in ``eval()``, a tokeniser, a seeded augmentation: what it returns
            depends on its arguments alone. It has to be picklable.
        random: ``"batch"``: it draws from the generators of ``random``, NumPy or PyTorch, as
            augmentation of whole batches does. Under ``penstock run``, whatever moves, each call
            then draws what the epoch's seed and its arguments say, and the program's generators
            stand afterwards where they stood; alone it draws from these, other numbers.

    Raises:
        TypeError: it cannot be called.
        ValueError: ``random`` is something else.
    """
    if not callable(function):
        raise TypeError(f"offload: {function!r:.100}: must be a function or a module")
    if random not in (None, BATCH):
        raise ValueError(f"offload: random: {random!r}; must be {BATCH!r}, or left out")
    if os.environ.get(INTERCEPT) != "1" or _declared(function):
        return function
    moves = PARTITION.now() is not Partition.NEVER
    if not moves and not random:
        return function
    declare()
    draws = random is not None
    if isinstance(function, torch.nn.Module):
        module, name = function, type(function).__qualname__
        its = Function(name, module.forward, module, lambda: _alone(module), draws, moves)
        if "forward" in vars(module):
            its.stays("it has a forward of its own beside its class's, as torch.compile makes it")
        else:
            _replace_forward(module, its)
        return function
    name = getattr(function, "__qualname__", type(function).__qualname__)
    wrapped: Any = _Offloaded(Function(name, function, function, lambda: function, draws, moves))
    return cast("Offloadable", wrapped)


class _Offloaded:
    """In the place of a callable; see `offload`."""

    def __init__(self, declared: Function) -> None:
        self.offloaded = declared

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return call_declared(self.offloaded, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "offloaded":  # of one that is being unpickled
            raise AttributeError(name)
        return getattr(self.offloaded.run, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, here or in another process, is the callable alone."""
        return _itself, (self.offloaded.run,)


class _Forward:
    """In the place of a module's ``forward``."""

    def __init__(self, module: torch.nn.Module, declared: Function) -> None:
        self.module = module
        self.offloaded = declared

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return call_declared(self.offloaded, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copied module runs by itself."""
        copied = memo.get(id(self.module), self.module)
        return _forward_of(copied)

    def __reduce__(self) -> tuple[Any, ...]:
        return _forward_of, (self.module,)


def _declared(function: Any) -> bool:
    return getattr(function, "offloaded", None) is not None


def _replace_forward(module: torch.nn.Module, declared: Function) -> None:
    module.__dict__["forward"] = _Forward(module, declared)
    module.__dict__["offloaded"] = declared


def _alone(module: torch.nn.Module) -> torch.nn.Module:
    """The module as data workers call it: hooks of its own are called by the program."""
    alone = object.__new__(type(module))
    alone.__dict__ = {**module.__dict__}
    for name in ("forward", "offloaded"):
        del alone.__dict__[name]
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        alone.__dict__[name] = type(module.__dict__[name])()
    return alone


def _forward_of(module: torch.nn.Module) -> Any:
    """The ``forward`` of its class."""
    return type(module).forward.__get__(module)


def _itself(function: Any) -> Any:
    return function
