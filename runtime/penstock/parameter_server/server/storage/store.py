"""The parameters of one server, and the optimizer that changes them.

A store holds some of the model's partitions: of each space one array with the rows of all of them,
and one vector of their dense pieces. So a request costs a few NumPy calls, whatever the number of
partitions. Without servers the same store, with all partitions, is the whole model of a process.

Invariants: a push is applied whole or not at all, and the push of a slot once; the value of a
parameter depends on the pushes to it alone, never on which partitions are beside it. A store is for
one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.data.ledger.permutation import derive_seed
from penstock.data.ledger.ranges import RangeSet
from penstock.parameter_server.arrays import Floats, Rows, Sparse
from penstock.parameter_server.spec import ModelSpec, OptimizerKind, SpaceSpec

_ELSEWHERE: Final = -(1 << 62)


class BadRequestError(ValueError):
    """A request that this store cannot answer, whoever asks; says what is wrong with it."""


class Store:
    """See the module's docstring."""

    def __init__(self, spec: ModelSpec, owned: Sequence[int]) -> None:
        """Parameters are zero until `initialise` or `set_partition`."""
        self.spec = spec
        self.owned = tuple(sorted(owned))
        self.applied = RangeSet()
        self.pushes = 0
        kinds = 1 + spec.optimizer.states
        self._spaces = [_Space(spec, number, self.owned) for number in range(len(spec.spaces))]
        self._dense_starts, size = {}, 0
        for partition in self.owned:
            start, stop = spec.dense_range(partition)
            self._dense_starts[partition] = size
            size += stop - start
        self._dense = [np.zeros(size, np.float32) for _ in range(kinds)]

    @property
    def version(self) -> int:
        """Updates that these parameters have seen."""
        return self.pushes

    @property
    def dense_size(self) -> int:
        """Numbers of the dense vector that are here."""
        return len(self._dense[0])

    @property
    def bytes(self) -> int:
        """Memory of all that is here."""
        arrays = [*self._dense, *(array for space in self._spaces for array in space.arrays)]
        return sum(array.nbytes for array in arrays)

    # ------------------------------------------------------------------ training

    def begin(self) -> Floats:
        """A copy of the dense pieces that are here, in the order of their partitions."""
        return self._dense[0].copy()

    def pull(self, space: int, rows: Rows) -> Floats:
        """The values of rows, (rows, dim). Raises QuestionError: they are not here."""
        here = self._space(space)
        values: Floats = here.arrays[0].take(here.places_of(rows), axis=0)
        return values

    def push(self, slot: int, gradients: Sparse, dense: Floats | None) -> bool:
        """Apply the gradients of one slot; False: they had been applied, nothing was done.

        Raises:
            QuestionError: a row is not here or there twice, a shape is wrong, or a gradient is not
                finite; nothing was applied.
        """
        if slot < 0:
            raise BadRequestError(f"slot: {slot}; slots are numbered from 0")
        if slot in self.applied:
            return False
        found = []
        if len({space for space, _, _ in gradients}) < len(gradients):
            raise BadRequestError("a space that is there twice")
        for number, rows, gradient in gradients:
            space = self._space(number)
            if gradient.shape != (len(rows), space.dim):
                raise BadRequestError(
                    f"gradients of space {number}: shape {gradient.shape}; must be "
                    f"{(len(rows), space.dim)}"
                )
            _check_finite(gradient, f"space {number}")
            _check_once(rows, number)
            found.append((space, space.places_of(rows), gradient))
        if dense is not None:
            if dense.shape != self._dense[0].shape:
                raise BadRequestError(
                    f"dense gradients: {dense.size} numbers; {self.dense_size} are here"
                )
            _check_finite(dense, "the dense parameters")
        for space, places, gradient in found:
            space.apply(places, gradient)
        if dense is not None and dense.size:
            _descend(self.spec, self._dense, dense)
        self.applied.add(slot, slot + 1)
        self.pushes += 1
        return True

    # ------------------------------------------------------------------ partitions

    def partition(self, partition: int) -> list[Floats]:
        """The arrays of a partition (`arrays`), as they are here: not copies."""
        if partition not in self._dense_starts:
            raise BadRequestError(f"partition {partition} is not here")
        arrays = [array for space in self._spaces for array in space.partition(partition)]
        start = self._dense_starts[partition]
        first, last = self.spec.dense_range(partition)
        return [*arrays, *(array[start : start + last - first] for array in self._dense)]

    def set_partition(self, partition: int, arrays: Sequence[Floats | None]) -> None:
        """Take over a partition. None instead of an array: its initial content.

        Raises:
            QuestionError: the partition is not here, or an array does not fit.
        """
        here = self.partition(partition)
        if len(arrays) != len(here):
            raise BadRequestError(f"partition {partition}: {len(arrays)} arrays, not {len(here)}")
        for array, into in zip(arrays, here, strict=True):
            if array is not None and array.size != into.size:
                raise BadRequestError(
                    f"partition {partition}: {array.size} numbers where {into.size} belong"
                )
        kinds = 1 + self.spec.optimizer.states
        for place, (array, into) in enumerate(zip(arrays, here, strict=True)):
            number, kind = divmod(place, kinds)
            if array is not None:
                into[...] = array.reshape(into.shape)
            elif kind:
                into.fill(self.spec.optimizer.initial_accumulator)
            elif number < len(self._spaces):
                into[...] = self._spaces[number].initial(partition)
            else:
                into.fill(0.0)

    def initialise(self) -> None:
        """All parameters as they are before the first update; the dense ones are zero."""
        for partition in self.owned:
            self.set_partition(partition, [None] * len(self.partition(partition)))

    def snapshot(self) -> Store:
        """A copy that nothing changes."""
        other = Store(self.spec, self.owned)
        for partition in self.owned:
            other.set_partition(partition, self.partition(partition))
        other.applied = self.applied.copy()
        other.pushes = self.pushes
        return other

    def _space(self, number: int) -> _Space:
        if not 0 <= number < len(self._spaces):
            raise BadRequestError(f"space {number}; the model has {len(self._spaces)}")
        return self._spaces[number]


class _Space:
    """The rows of one space that are in the partitions of a store."""

    def __init__(self, spec: ModelSpec, number: int, owned: Sequence[int]) -> None:
        self.spec = spec
        self.number = number
        self.dim = spec.spaces[number].dim
        self._places = spec.places[number]
        self._starts = np.full(spec.partitions, _ELSEWHERE, np.int64)
        size = 0
        for partition in owned:
            self._starts[partition] = size
            size += self._places.count(partition)
        kinds = 1 + spec.optimizer.states
        self.arrays = [np.zeros((size, self.dim), np.float32) for _ in range(kinds)]
        # One opaque number per row: NumPy then stores rows by copying each at once, in a third to
        # two thirds of the time that its loop over two dimensions takes.
        row = np.dtype((np.void, self.dim * 4))
        self._by_row = [array.view(row).ravel() for array in self.arrays]

    def places_of(self, rows: Rows) -> Rows:
        """Where rows are in the arrays."""
        if not len(rows):
            return rows
        if rows.view(np.uint64).max() >= self._places.rows:  # negative ones are beyond, too
            raise BadRequestError(
                f"rows {rows.min()} to {rows.max()} of space {self.number}, which has "
                f"{self._places.rows}"
            )
        partition, index = self._places.of(rows)
        index += self._starts.take(partition)
        if index.min() < 0:
            raise BadRequestError(f"rows of space {self.number} that are not here")
        return index

    def apply(self, places: Rows, gradient: Floats) -> None:
        """Make one step along the gradient of some rows, each there once."""
        arrays = [array.take(places, axis=0) for array in self.arrays]
        _descend(self.spec, arrays, gradient)
        for array, by_row in zip(arrays, self._by_row, strict=True):
            by_row[places] = array.view(by_row.dtype).ravel()

    def partition(self, partition: int) -> list[Floats]:
        """The rows of one partition in each array."""
        start = int(self._starts[partition])
        stop = start + self._places.count(partition)
        return [array[start:stop] for array in self.arrays]

    def initial(self, partition: int) -> Floats:
        """The values of a partition's rows before the first update: by seed, wherever they are."""
        space = self.spec.spaces[self.number]
        generator = np.random.default_rng(derive_seed(self.spec.seed, self.number, partition))
        shape = (self._places.count(partition), self.dim)
        values = generator.standard_normal(shape, np.float32)
        values *= _deviations(space, self._places.rows_of(partition))[:, None]
        return values


def _deviations(space: SpaceSpec, rows: Rows) -> Floats:
    """The deviation of each row: that of its table."""
    table = np.searchsorted(np.asarray(space.starts), rows, side="right") - 1
    return np.asarray([table.deviation for table in space.tables], np.float32)[table]


def _descend(spec: ModelSpec, arrays: Sequence[Floats], gradient: Floats) -> None:
    """One step of the optimizer, in place: ``arrays`` are the values and their state."""
    optimizer = spec.optimizer
    rate = np.float32(optimizer.learning_rate)
    if optimizer.kind is OptimizerKind.SGD:
        arrays[0] -= rate * gradient
        return
    values, state = arrays
    step = gradient * gradient
    state += step
    np.sqrt(state, out=step)
    step += np.float32(optimizer.epsilon)
    np.divide(gradient, step, out=step)
    step *= rate
    values -= step


def _check_finite(gradient: Floats, of: str) -> None:
    if not np.isfinite(gradient).all():
        raise BadRequestError(f"gradients of {of} that are not finite")


def _check_once(rows: Rows, number: int) -> None:
    """Rows in ascending order, as callers have them anyway, cost almost nothing to check."""
    ascending = (rows[1:] > rows[:-1]).all()
    if not ascending and len(np.unique(rows)) < len(rows):
        raise BadRequestError(f"a row of space {number} that is there twice")
