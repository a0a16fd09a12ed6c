"""The arrays of a model's parameters: which ones a partition has, in which order.

For each space the values of the partition's rows (rows, dim) and then, with an optimizer that has a
state, their states (rows, dim) and, if it counts updates, the counts (rows, 1); for a table that is
keyed by ids also its keys (rows, 4) and, if ids have to be seen more than once, its candidates
(rows, 6), which are int64 pairs and triples in the guise of twice as many float32. Then the same of
its piece of the dense vector, which has one count (1,). In that order a store has them, messages
carry them and checkpoints hold them; an array that is left out is as it was before the first
update.

Counts are float32 as all numbers here, and as torch.optim's: exact up to `MAX_UPDATES` of a row,
where they stay. Whatever depends on them has long come to rest by then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.parameter_server.spec import ModelSpec

MAX_UPDATES: Final = 1 << 24

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
    optimizer = spec.optimizer
    shapes: list[tuple[int, ...]] = [
        (places.count(partition), width)
        for number, places in enumerate(spec.places)
        for width in spec.widths(number)
    ]
    return [*shapes, *[(stop - start,)] * (1 + optimizer.states), *[(1,)] * optimizer.counted]


def counts_among(spec: ModelSpec) -> list[int]:
    """Which of a partition's arrays are counts of updates."""
    if not spec.optimizer.counted:
        return []
    found, at = [], 0
    for number in range(len(spec.spaces)):
        found.append(at + 1 + spec.optimizer.states)
        at += len(spec.widths(number))
    return [*found, at + 1 + spec.optimizer.states]


def sizes_of(spec: ModelSpec, partition: int) -> list[int]:
    """The numbers in each of a partition's arrays."""
    return [math.prod(shape) for shape in shapes_of(spec, partition)]


def afresh(spec: ModelSpec, partition: int, dense: Floats) -> list[Floats | None]:
    """A partition of a model that begins with these dense parameters; None: left out."""
    arrays: list[Floats | None] = [None] * len(shapes_of(spec, partition))
    start, stop = spec.dense_range(partition)
    arrays[-1 - len(spec.optimizer.initial)] = dense[start:stop]
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
