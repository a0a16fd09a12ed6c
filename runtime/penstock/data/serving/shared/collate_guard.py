"""Collating samples that others get too: what a collate function does to them is its own.

It gets containers of its own, and copies of arrays where it is seen to change those that it was
given. PyTorch's ``default_collate`` changes nothing and gets the samples as they are, unseeded.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from penstock.data.pipeline import Pipeline

MAX_DEPTH: Final = 16


class CollateGuard:
    """Calls a collate function with samples that others get too; see the module's docstring."""

    def __init__(self) -> None:
        self._changes: bool | None = None  # whether it does; None: not known yet

    def collate(self, pipeline: Pipeline, seed: int, indices: list[int], samples: list[Any]) -> Any:
        """The batch of these samples, which stay as they are."""
        if keeps(pipeline.collate):
            return pipeline.collate(samples)  # it draws no random numbers either
        if self._changes is not None:
            given = [apart(one, copies=self._changes) for one in samples]
            return pipeline.collated(seed, indices, given)
        given = [apart(one, copies=True) for one in samples]
        arrays = list(_arrays(given))
        before = _digest(arrays)
        batch = pipeline.collated(seed, indices, given)
        self._changes = before != _digest(arrays)
        return batch


def _arrays(value: Any, depth: int = 0) -> Iterator[np.ndarray[Any, Any]]:
    """What holds numbers in samples, each of them a view."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple) and depth <= MAX_DEPTH:
        for one in value:
            yield from _arrays(one, depth + 1)
    elif isinstance(value, np.ndarray):
        yield value
    elif (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
        yield value.detach().numpy()


def _digest(arrays: list[np.ndarray[Any, Any]]) -> bytes:
    found = hashlib.blake2b()
    for array in arrays:
        found.update(array.tobytes())
    return found.digest()


def keeps(collate: Any) -> bool:
    """Whether a collate function is one that leaves its samples as they are, and draws nothing."""
    name = f"{getattr(collate, '__module__', '')}.{getattr(collate, '__qualname__', '')}"
    if name == "torch.utils.data._utils.collate.default_collate":
        return True
    return type(collate).__qualname__ == "PlacedCollate"


def apart(value: Any, *, copies: bool, depth: int = 0) -> Any:
    """A sample whose containers are new, and with ``copies`` its arrays too."""
    if depth > MAX_DEPTH:
        return value
    kind = type(value)
    if kind is dict:
        return {key: apart(one, copies=copies, depth=depth + 1) for key, one in value.items()}
    if kind is list or kind is tuple:
        return kind(apart(one, copies=copies, depth=depth + 1) for one in value)
    if copies and (clone := getattr(value, "clone", None) or getattr(value, "copy", None)):
        return clone()
    return value
