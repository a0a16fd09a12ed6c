"""A tensor of a step that is looked at: it tells its step of every call that is made with it.

It is no mode: calls with other tensors are not seen, and cost nothing. A *step* gets the program's
calls of PyTorch's functions (`Step.call`) and modules (`Step.module`), and operators that reach the
tensor in another way, from compiled code (`Step.unseen`). What it is told to compute, it computes
on plain tensors, as the program would have without it.

A `Deferred` has the numbers (``_plain``; it then lies in the same memory), or has none yet: it is
like the tensor that the program would have in all but its numbers, and whoever reaches for its
memory itself, past PyTorch, gets an error and never a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from penstock.data.torchpartition.observation.functions import DESCRIBING, name_of

_CPU: Final = torch.device("cpu")
_HOLDING_NOTHING: Final = frozenset(
    (int, float, bool, str, type(None), torch.Tensor, torch.nn.Parameter, torch.dtype, torch.device)
)
"""Types of arguments in which no tensor of a step can be; most calls have no others."""


class Meta(NamedTuple):
    """A tensor but for its numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Meta:
        """What a tensor is like."""
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        return cls(shape, stride, int(tensor.storage_offset()), str(tensor.dtype)[6:])

    @property
    def kind(self) -> tuple[str, int]:
        """All but the sizes."""
        return self.dtype, len(self.shape)

    @property
    def size_bytes(self) -> int:
        """Of its numbers."""
        count = 1
        for size in self.shape:
            count *= size
        return count * _dtype(self.dtype).itemsize


class Step(Protocol):
    """Who is told."""

    number: int
    """Later steps have greater ones."""
    open: bool
    """Whether it is still under way: calls with tensors of one that is over are just made."""

    def call(self, name: str, function: Any, args: Any, kwargs: Any) -> Any:
        """The program calls a function, by `name_of`."""

    def module(self, module: Any, args: Any, kwargs: Any, run: Any) -> Any:
        """The program calls a module; ``run(module, *args, **kwargs)`` is how it would be."""

    def unseen(self, operator: Any, flat: list[Any], spec: TreeSpec) -> Any:
        """An operator reaches a tensor past PyTorch's functions in Python."""

    def plain(self, tensor: Deferred) -> torch.Tensor:
        """The tensor that one of its own stands for."""


@dataclass
class _Count:
    alive: int = 0


_count: Final = _Count()


def alive() -> int:
    """How many there are, whoever has them."""
    return _count.alive


class Deferred(torch.Tensor):
    """See the module's docstring; made by `with_numbers` and `without_numbers`."""

    _step: Step
    _key: int
    _plain: torch.Tensor | None

    def __del__(self, count: _Count = _count) -> None:
        """One fewer; also when the interpreter ends, and this module has no names any more."""
        count.alive -= 1

    __hash__ = object.__hash__  # the same before and after it has numbers

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Tell the step; see `Step`."""
        kwargs = kwargs or {}
        name = name_of(func)
        if name in DESCRIBING:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*map(_if_there, args), **{k: _if_there(v) for k, v in kwargs.items()})
        return _newest((args, kwargs)).call(name, func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the stub is of no method
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Tell the step; see `Step`."""
        flat, spec = tree_flatten((args, kwargs or {}))
        return _newest((args, kwargs or {})).unseen(func, flat, spec)


def with_numbers(plain: torch.Tensor, step: Step, key: int) -> Deferred:
    """One that stands for a tensor that is there."""
    made: Deferred = plain.as_subclass(Deferred)
    made._step, made._key, made._plain = step, key, plain
    _count.alive += 1
    return made


def without_numbers(meta: Meta, step: Step, key: int) -> Deferred:
    """One that stands for a tensor that is not computed here."""
    made: Deferred = torch.Tensor._make_wrapper_subclass(
        Deferred,
        meta.shape,
        strides=meta.stride,
        storage_offset=meta.offset,
        dtype=_dtype(meta.dtype),
        device=_CPU,
    )
    torch._C._set_throw_on_mutable_data_ptr(made)
    made._step, made._key, made._plain = step, key, None
    _count.alive += 1
    return made


def plain_of(value: Any) -> Any:
    """What stands behind a value, if anything does."""
    return value._step.plain(value) if isinstance(value, Deferred) else value


def call_plain(function: Any, flat: Sequence[Any], spec: TreeSpec) -> Any:
    """Call it as the program would have."""
    args, kwargs = tree_unflatten(list(map(plain_of, flat)), spec)
    return function(*args, **kwargs)


def first_deferred(values: Iterable[Any]) -> Deferred | None:
    """The first in these, and lists, tuples and dicts in them; quick where there is none."""
    for value in values:
        kind = type(value)
        if kind is Deferred:
            found: Deferred | None = value
        elif kind is list or kind is tuple:
            found = first_deferred(value)
        elif isinstance(value, dict):
            found = first_deferred(value.values())
        else:
            continue
        if found is not None:
            return found
    return None


@cache
def _dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found


def _if_there(value: Any) -> Any:
    if isinstance(value, Deferred) and value._plain is not None:
        return value._plain
    return value


def _only_step(values: Iterable[Any]) -> Step | None:
    """The step of all tensors in these; None: of several, or there are things to look into."""
    found: Step | None = None
    for value in values:
        kind = type(value)
        if kind is Deferred:
            if found is not None and value._step is not found:
                return None
            found = value._step
        elif kind not in _HOLDING_NOTHING:
            return None
    return found


def _newest(arguments: tuple[Any, Any]) -> Step:
    """The step that is to be told: of those under way the one that began last."""
    args, kwargs = arguments
    if not kwargs and (only := _only_step(args)) is not None:
        return only
    flat, _ = tree_flatten(arguments)
    steps = {id(one._step): one._step for one in flat if isinstance(one, Deferred)}
    return max(steps.values(), key=lambda step: (step.open, step.number))
