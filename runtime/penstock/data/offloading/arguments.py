"""What a function is called with, as parts of the batch that a loader has just given.

A tensor is known by what it is, not by its numbers: it is the very object of the batch, and nothing
was written to it since. Texts are known by what they say. Arguments that are neither, nor
constants, nor lists, tuples and dicts of them, are nothing that another process could have.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

MAX_LEAVES: Final = 1000
MAX_DEPTH: Final = 8
MAX_NAMES: Final = 8
"""A tuple of so few texts that is none of the batch's may be the names of something."""
_CONSTANTS: Final = (
    bool,
    int,
    float,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    torch.memory_format,
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part of the batch: the keys and positions that lead to it."""

    path: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant; 1, 1.0 and True are not the same."""

    kind: type
    value: Any


@dataclass(frozen=True, slots=True)
class Built:
    """A list, tuple or dict; ``keys``: of a dict."""

    kind: type
    keys: tuple[Any, ...]
    parts: tuple[Argument, ...]


Argument = Leaf | Fixed | Built


class BatchParts:
    """The parts of one batch, which is not kept alive by this."""

    def __init__(self, batch: Any) -> None:
        self._tensors: dict[int, tuple[weakref.ref[Any], int, Leaf]] = {}
        self._texts: list[tuple[Leaf, list[str] | tuple[str, ...]]] = []
        for path, value in _leaves(batch, (), 0):
            if len(self._tensors) + len(self._texts) == MAX_LEAVES:
                break
            leaf = Leaf(path)
            if isinstance(value, torch.Tensor):
                self._tensors[id(value)] = weakref.ref(value), version(value), leaf
            else:
                self._texts.append((leaf, value[:]))

    def argument(self, value: Any, depth: int = 0) -> Argument | None:
        """A value as parts of the batch and constants; None: it has other parts."""
        if isinstance(value, torch.Tensor):
            known = self._tensors.get(id(value))
            if known is None:
                return None
            reference, at, leaf = known
            same: bool = reference() is value
            return leaf if same and version(value) == at else None
        if isinstance(value, _CONSTANTS):
            return Fixed(type(value), value)
        if type(value) not in (list, tuple, dict) or depth == MAX_DEPTH:
            return None
        if _is_texts(value):
            found_texts = next((leaf for leaf, texts in self._texts if texts == value), None)
            if found_texts or type(value) is list or len(value) > MAX_NAMES:
                return found_texts
        keys = tuple(value) if type(value) is dict else ()
        found = []
        for one in value.values() if keys else value:
            part = self.argument(one, depth + 1)
            if part is None:
                return None
            found.append(part)
        return Built(type(value), keys, tuple(found))


def version(tensor: torch.Tensor) -> int:
    """It grows with each write to the tensor that PyTorch knows of."""
    return 0 if tensor.is_inference() else tensor._version


def has_leaf(argument: Argument) -> bool:
    """Whether anything of it is of the batch."""
    return isinstance(argument, Leaf) or (
        isinstance(argument, Built) and any(map(has_leaf, argument.parts))
    )


def leaves_of(argument: Argument) -> Iterator[Leaf | Fixed]:
    """All of an argument but lists, tuples and dicts, in order."""
    if isinstance(argument, Built):
        for part in argument.parts:
            yield from leaves_of(part)
    else:
        yield argument


def fill(argument: Argument, batch: Any) -> Any:
    """The value that an argument has with a batch.

    Raises:
        LookupError: the batch has no such part.
    """
    if isinstance(argument, Fixed):
        return argument.value
    if isinstance(argument, Leaf):
        for key in argument.path:
            batch = batch[key]
        return batch
    parts = [fill(part, batch) for part in argument.parts]
    if argument.kind is dict:
        return dict(zip(argument.keys, parts, strict=True))
    return argument.kind(parts)


def _leaves(value: Any, path: tuple[Any, ...], depth: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, torch.Tensor) or _is_texts(value):
        yield path, value
    elif depth == MAX_DEPTH:
        return
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key), depth + 1)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*path, number), depth + 1)


def _is_texts(value: Any) -> bool:
    """Whether it is what ``default_collate`` makes of a text of each sample, or as a list."""
    return type(value) in (list, tuple) and bool(value) and set(map(type, value)) == {str}
