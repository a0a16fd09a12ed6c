"""What a model on parameter servers consists of, and where each of its parameters belongs.

Tables of the same width share a *space*: one range of rows, table after table. All dense parameters
together are one flat vector. Both are cut into the same number of *partitions*, the unit that
servers own, move and save: partition p holds the rows whose place is p modulo the number of
partitions, and the p-th piece of the dense vector. Which partition a parameter is in depends on the
model alone, never on the number of servers, so a checkpoint fits any of them.

A row's place is a bijection of its number (multiplication by a number coprime to the rows), so that
rows of neighbouring ids, and the popular ones of every table, are spread evenly, each partition is
a plain array without an index, and its size is known before anything is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from penstock.data.protocol import Message

PARTITIONS: Final = 128
"""Partitions of a model unless it says otherwise; a job has at most so many servers."""
MAX_ROWS: Final = 1 << 31
MAX_DIM: Final = 1 << 16
FLOAT_BYTES: Final = 4
_GOLDEN: Final = 0.6180339887498949

Name = Annotated[str, Field(min_length=1, max_length=200)]


class OptimizerKind(StrEnum):
    """The rule by which servers apply gradients."""

    SGD = "sgd"
    ADAGRAD = "adagrad"


class OptimizerSpec(Message):
    """One optimizer for all parameters; the rules are those of torch.optim, without weight decay.

    SGD: ``w -= lr * g``. Adagrad: ``s += g * g; w -= lr * g / (sqrt(s) + eps)``.
    """

    kind: OptimizerKind
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-10
    initial_accumulator: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    @property
    def states(self) -> int:
        """Numbers kept beside each parameter."""
        return 1 if self.kind is OptimizerKind.ADAGRAD else 0


class TableSpec(Message):
    """One embedding table; its rows begin as normal noise of this deviation."""

    name: Name
    rows: Annotated[int, Field(ge=1, lt=MAX_ROWS)]
    deviation: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0


class SpaceSpec(Message):
    """Tables of one width, one after the other."""

    dim: Annotated[int, Field(ge=1, le=MAX_DIM)]
    tables: Annotated[tuple[TableSpec, ...], Field(min_length=1, max_length=1 << 14)]

    @model_validator(mode="after")
    def _bounded(self) -> SpaceSpec:
        if self.rows >= MAX_ROWS:
            raise ValueError(
                f"tables of width {self.dim} have {self.rows} rows together; at most {MAX_ROWS - 1}"
            )
        return self

    @cached_property
    def rows(self) -> int:
        """Rows of all tables."""
        return sum(table.rows for table in self.tables)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each table's rows begin within the space."""
        starts, at = [], 0
        for table in self.tables:
            starts.append(at)
            at += table.rows
        return tuple(starts)


class DenseSpec(Message):
    """One dense parameter."""

    name: Name
    shape: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=16)]

    @property
    def size(self) -> int:
        """Its numbers."""
        return math.prod(self.shape)


class ModelSpec(Message):
    """A whole model: the same on every worker, or the job refuses the worker."""

    spaces: Annotated[tuple[SpaceSpec, ...], Field(max_length=64)] = ()
    dense: Annotated[tuple[DenseSpec, ...], Field(max_length=1 << 14)] = ()
    optimizer: OptimizerSpec
    seed: int = 0
    partitions: Annotated[int, Field(ge=1, le=4096)] = PARTITIONS

    @cached_property
    def dense_size(self) -> int:
        """Numbers in the dense vector."""
        return sum(parameter.size for parameter in self.dense)

    @cached_property
    def places(self) -> tuple[Places, ...]:
        """The places of each space's rows."""
        return tuple(Places(space.rows, self.partitions) for space in self.spaces)

    def dense_range(self, partition: int) -> tuple[int, int]:
        """The piece of the dense vector that is in a partition: start, stop."""
        return (
            self.dense_size * partition // self.partitions,
            self.dense_size * (partition + 1) // self.partitions,
        )

    @cached_property
    def bytes(self) -> int:
        """Memory of all parameters and the optimizer's state."""
        numbers = self.dense_size + sum(space.rows * space.dim for space in self.spaces)
        return numbers * FLOAT_BYTES * (1 + self.optimizer.states)

    def difference(self, other: ModelSpec) -> str | None:
        """The first thing in which another model differs, for people; None if nothing does."""
        ours, theirs = dict(_facts(self)), dict(_facts(other))
        for name in {**ours, **theirs}:
            if ours.get(name) != theirs.get(name):
                return f"{name}: {theirs.get(name, 'absent')} instead of {ours.get(name, 'absent')}"
        if self._names() != other._names():
            return f"order of tables and parameters: {other._names()} instead of {self._names()}"
        return None

    def _names(self) -> list[str]:
        tables = (table.name for space in self.spaces for table in space.tables)
        return [*tables, *(parameter.name for parameter in self.dense)]


class Places:
    """The places of ``rows`` rows in ``partitions`` partitions; see the module's docstring."""

    def __init__(self, rows: int, partitions: int) -> None:
        self.rows = rows
        self.partitions = partitions
        self._factor = _coprime(rows)

    def count(self, partition: int) -> int:
        """Rows in a partition."""
        return max(0, -(-(self.rows - partition) // self.partitions))

    def of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Partition of each row, and its index within that.

        With quotients only: NumPy's remainder takes twice the time for thousands of rows.
        """
        place = rows * self._factor
        place -= place // self.rows * self.rows
        index = place // self.partitions
        place -= index * self.partitions
        return place, index

    def rows_of(self, partition: int) -> NDArray[np.int64]:
        """The rows of a partition, in the order of their index: the inverse of `of`."""
        place = np.arange(partition, self.rows, self.partitions, dtype=np.int64)
        rows: NDArray[np.int64] = place * pow(self._factor, -1, self.rows) % self.rows
        return rows


def _facts(spec: ModelSpec) -> Iterator[tuple[str, object]]:
    yield "optimizer", spec.optimizer.kind.value
    yield "partitions", spec.partitions
    for space in spec.spaces:
        for table in space.tables:
            yield f"table {table.name}", f"{table.rows} rows of {space.dim}"
    for parameter in spec.dense:
        yield f"parameter {parameter.name}", f"shape {list(parameter.shape)}"


def _coprime(rows: int) -> int:
    factor = max(1, int(rows * _GOLDEN))
    while math.gcd(factor, rows) != 1:
        factor += 1
    return factor
