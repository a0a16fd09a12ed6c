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
from penstock.parameter_server.buckets import Buckets
from penstock.parameter_server.schedule import Schedule

PARTITIONS: Final = 128
"""Partitions of a model unless it says otherwise; a job has at most so many servers."""
MAX_ROWS: Final = 1 << 31
MAX_DIM: Final = 1 << 16
FLOAT_BYTES: Final = 4
KEY_WIDTH: Final = 4
"""Of a row of such a table: its id and when it was seen last, 8 bytes each."""
CANDIDATE_WIDTH: Final = 6
"""Of an id that has no row yet: the same, and how often it was seen."""
_GOLDEN: Final = 0.6180339887498949

Name = Annotated[str, Field(min_length=1, max_length=200)]


class OptimizerKind(StrEnum):
    """The rule by which servers apply gradients."""

    SGD = "sgd"
    ADAGRAD = "adagrad"
    ADAM = "adam"
    ADAMW = "adamw"


Below1 = Annotated[float, Field(ge=0, lt=1)]
AtLeast0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class OptimizerSpec(Message):
    """One optimizer for all parameters; the rules are those of torch.optim with these names.

    With g the gradient, w the parameter, t the number of this update of w, and r the rate of the
    batch:

    - SGD: ``w -= r * g``; with momentum ``m = momentum * m + g; w -= r * m``, and with Nesterov's
      ``w -= r * (g + momentum * m)``
    - Adagrad: ``s += g * g; w -= r * g / (sqrt(s) + eps)``
    - Adam (Kingma and Ba 2015, algorithm 1): ``m += (1 - b1) * (g - m); v = b2 * v + (1 - b2) * g *
      g; w -= r / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)``
    - AdamW (Loshchilov and Hutter 2019, algorithm 2): the same after ``w *= 1 - r * weight_decay``

    The other rules take weight decay as part of the gradient: ``g += weight_decay * w``.

    **Rows are lazy**: a row that a batch does not look up stays as it is, with its state, and does
    not decay. t counts *for each row* the batches that had a gradient of it, so each row is trained
    as a parameter of its own that has a gradient now and then: what torch.optim makes of one
    ``Parameter`` for each row, and what PaddlePaddle's servers do (``SparseAdamSGDRule``).
    torch.optim.SparseAdam has one t for a whole table instead, with which a row that is rare makes
    its first step without correction, ``(1 - b1) / sqrt(1 - b2)`` times as long as meant; and on
    several servers there is no such number that all agree on.
    All dense parameters share one t: the batches that had a gradient of any.
    """

    kind: OptimizerKind
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    epsilon: AtLeast0 = 1e-10
    initial_accumulator: AtLeast0 = 0.0
    momentum: Below1 = 0.0
    nesterov: bool = False
    beta1: Below1 = 0.9
    beta2: Below1 = 0.999
    weight_decay: AtLeast0 = 0.0
    schedule: Schedule | None = None

    def rate(self, slot: int) -> float:
        """The learning rate of the batch of a slot."""
        return self.learning_rate * (1.0 if self.schedule is None else self.schedule.factor(slot))

    @property
    def counted(self) -> bool:
        """Whether the updates of each row are counted: t is one of its state's numbers."""
        return self.kind in (OptimizerKind.ADAM, OptimizerKind.ADAMW)

    @property
    def states(self) -> int:
        """Numbers kept beside each parameter, apart from t."""
        if self.counted:
            return 2
        return 1 if self.kind is OptimizerKind.ADAGRAD or self.momentum else 0

    @property
    def initial(self) -> tuple[float, ...]:
        """What each array of the state holds before the first update, t at the end."""
        first = self.initial_accumulator if self.kind is OptimizerKind.ADAGRAD else 0.0
        return (first,) * self.states + (0.0,) * self.counted

    def __str__(self) -> str:
        return f"{self.kind.value} with momentum" if self.momentum else self.kind.value


class TableSpec(Message):
    """One embedding table; its rows begin as normal noise of this deviation."""

    name: Name
    rows: Annotated[int, Field(ge=1, lt=MAX_ROWS)]
    deviation: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0


class Vocabulary(Message):
    """When ids get a row in a table that is keyed by them, and lose it.

    An id gets one with the gradient of the ``admit_after``-th batch that looks it up; before that
    its gradients are dropped, and it reads as zeros. Its row is gone once no gradient of it has
    come for more than ``evict_after`` updates of the model. Without a bound on age, and where the
    table is full, the row that was seen least recently makes room.
    """

    admit_after: Annotated[int, Field(ge=1, lt=1 << 31)] = 1
    evict_after: Annotated[int, Field(ge=1, lt=1 << 62)] | None = None


class SpaceSpec(Message):
    """Tables of one width, one after the other; or one table that is keyed by ids.

    With a ``vocabulary`` the table's ``rows`` are its capacity, and its "rows" in requests are ids,
    any 64-bit number.
    """

    dim: Annotated[int, Field(ge=1, le=MAX_DIM)]
    tables: Annotated[tuple[TableSpec, ...], Field(min_length=1, max_length=1 << 14)]
    vocabulary: Vocabulary | None = None

    @model_validator(mode="after")
    def _bounded(self) -> SpaceSpec:
        if self.vocabulary is not None and len(self.tables) > 1:
            raise ValueError(f"tables: {len(self.tables)}; one that is keyed by ids is alone")
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
    def places(self) -> tuple[Places | Buckets, ...]:
        """The places of each space's rows."""
        return tuple(
            Places(space.rows, self.partitions)
            if space.vocabulary is None
            else Buckets(space.rows, self.partitions)
            for space in self.spaces
        )

    def widths(self, space: int) -> tuple[int, ...]:
        """Numbers of 4 bytes that each array of a space has in a row; see `arrays`."""
        optimizer, wanted = self.optimizer, self.spaces[space]
        own = (wanted.dim,) * (1 + optimizer.states) + (1,) * optimizer.counted
        if wanted.vocabulary is None:
            return own
        return (*own, KEY_WIDTH) + (CANDIDATE_WIDTH,) * (wanted.vocabulary.admit_after > 1)

    def dense_range(self, partition: int) -> tuple[int, int]:
        """The piece of the dense vector that is in a partition: start, stop."""
        return (
            self.dense_size * partition // self.partitions,
            self.dense_size * (partition + 1) // self.partitions,
        )

    @cached_property
    def bytes(self) -> int:
        """Memory of all parameters and the optimizer's state."""
        counts = self.partitions * self.optimizer.counted
        numbers = self.dense_size * (1 + self.optimizer.states) + counts
        for number, places in enumerate(self.places):
            numbers += places.rows * sum(self.widths(number))
        return FLOAT_BYTES * numbers

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
    yield "optimizer", str(spec.optimizer)
    yield "partitions", spec.partitions
    for space in spec.spaces:
        for table in space.tables:
            by_id = "" if space.vocabulary is None else " by id"
            yield f"table {table.name}", f"{table.rows} rows of {space.dim}{by_id}"
    for parameter in spec.dense:
        yield f"parameter {parameter.name}", f"shape {list(parameter.shape)}"


def _coprime(rows: int) -> int:
    factor = max(1, int(rows * _GOLDEN))
    while math.gcd(factor, rows) != 1:
        factor += 1
    return factor
