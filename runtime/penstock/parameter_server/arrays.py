"""The arrays of a model's parameters: which ones a partition has, in which order.

For each space the values of the partition's rows (rows, dim) and then, with an optimizer that has a
state, their states; then the same of its piece of the dense vector. In that order a store has them,
messages carry them and checkpoints hold them; an array that is left out is as it was before the
first update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.parameter_server.spec import ModelSpec

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


class Gradients(NamedTuple):
    """Gradients of some rows of a space, each row once; values (rows, dim)."""

    space: int
    rows: Rows
    values: Floats


Sparse = Sequence[tuple[int, Rows, Floats]]
"""`Gradients` of several spaces, each space once."""


def shapes_of(spec: ModelSpec, partition: int) -> list[tuple[int, ...]]:
    """The shapes of a partition's arrays."""
    start, stop = spec.dense_range(partition)
    kinds = 1 + spec.optimizer.states
    rows = [
        (places.count(partition), space.dim)
        for space, places in zip(spec.spaces, spec.places, strict=True)
    ]
    return [shape for shape in [*rows, (stop - start,)] for _ in range(kinds)]


def sizes_of(spec: ModelSpec, partition: int) -> list[int]:
    """The numbers in each of a partition's arrays."""
    return [math.prod(shape) for shape in shapes_of(spec, partition)]


def afresh(spec: ModelSpec, partition: int, dense: Floats) -> list[Floats | None]:
    """A partition of a model that begins with these dense parameters; None: left out."""
    arrays: list[Floats | None] = [None] * len(shapes_of(spec, partition))
    start, stop = spec.dense_range(partition)
    arrays[-1 - spec.optimizer.states] = dense[start:stop]
    return arrays


def cut(flat: Floats, lengths: Sequence[int]) -> list[Floats]:
    """Arrays that lie one after the other, as views. Raises ValueError: they are not that long."""
    if any(length < 0 for length in lengths) or sum(lengths) != len(flat):
        raise ValueError(f"{len(flat)} numbers where arrays of {list(lengths)} were announced")
    found, at = [], 0
    for length in lengths:
        found.append(flat[at : at + length])
        at += length
    return found


def received(body: memoryview, lengths: Any) -> list[Floats]:
    """The arrays in the body of a message whose header announced these lengths; as `cut`."""
    flat = np.frombuffer(body, np.float32) if len(body) else np.empty(0, np.float32)
    return cut(flat, lengths)
