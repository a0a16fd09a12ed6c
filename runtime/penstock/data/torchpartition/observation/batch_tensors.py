"""The tensors of a batch: found in lists, tuples, named tuples and dicts, and replaced there.

Dicts are also those of `collections.UserDict`, such as what tokenizers of transformers give.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch

MAX_DEPTH: Final = 8
MAX_TENSORS: Final = 200


class BatchTensors:
    """Of one batch.

    Attributes:
        paths: keys and positions that lead to each, in order.
        tensors: the same that the batch has.
        problem: why steps with it are not looked at; "": they may be.
    """

    def __init__(self, batch: Any) -> None:
        found = list(_tensors(batch, (), 0))
        self.paths = tuple(path for path, _ in found)
        self.tensors = [tensor for _, tensor in found]
        memory = {one.untyped_storage()._cdata for one in self.tensors}
        self.problem = ""
        if not found:
            self.problem = "its batches have no tensors in lists, tuples or dicts"
        elif len(found) > MAX_TENSORS:
            self.problem = f"its batches have more than {MAX_TENSORS} tensors"
        elif len(memory) < len(found):
            self.problem = "two tensors of a batch lie in the same memory"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of all of them."""
        return tuple(tuple(one.shape) for one in self.tensors)

    @property
    def kinds(self) -> tuple[Any, ...]:
        """All but the sizes of the batch: where its tensors are, and of which type."""
        return tuple(
            (path, str(one.dtype)[6:], one.dim())
            for path, one in zip(self.paths, self.tensors, strict=True)
        )


def with_tensors(batch: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The batch with these in the place of its own; its lists and dicts stay the same objects."""
    left = iter(tensors)
    return _replaced(batch, left, 0)


def _is_leaf(value: Any) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.requires_grad
    )


def _is_tuple(value: Any) -> bool:
    kind = type(value)
    named = isinstance(value, tuple) and hasattr(kind, "_fields")
    return kind is tuple or (named and not kind.__module__.startswith("torch"))


def _dict_of(value: Any) -> dict[Any, Any] | None:
    """What holds the entries of a dict; None: it is none."""
    found = getattr(value, "data", None) if isinstance(value, UserDict) else value
    return found if type(found) is dict else None


def _tensors(
    value: Any, path: tuple[Any, ...], depth: int
) -> Iterator[tuple[tuple[Any, ...], torch.Tensor]]:
    if _is_leaf(value):
        yield path, value
    elif depth == MAX_DEPTH:
        return
    elif (found := _dict_of(value)) is not None:
        for key, one in found.items():
            yield from _tensors(one, (*path, key), depth + 1)
    elif type(value) is list or _is_tuple(value):
        for number, one in enumerate(value):
            yield from _tensors(one, (*path, number), depth + 1)


def _replaced(value: Any, left: Iterator[torch.Tensor], depth: int) -> Any:
    if _is_leaf(value):
        return next(left)
    if depth == MAX_DEPTH:
        return value
    if (found := _dict_of(value)) is not None:
        for key, one in found.items():
            found[key] = _replaced(one, left, depth + 1)
    elif type(value) is list:
        value[:] = [_replaced(one, left, depth + 1) for one in value]
    elif _is_tuple(value):
        parts = [_replaced(one, left, depth + 1) for one in value]
        return tuple(parts) if type(value) is tuple else type(value)(*parts)
    return value
