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

import numpy as np

from penstock.data.ledger.ranges import RangeSet
from penstock.parameter_server.arrays import MAX_UPDATES, Floats, Rows, Sparse, counts_among
from penstock.parameter_server.server.storage.dynamic_space import DynamicSpace
from penstock.parameter_server.server.storage.space import BadRequestError, Space, TableSpace
from penstock.parameter_server.server.storage.update_rule import UpdateRule
from penstock.parameter_server.spec import ModelSpec


class Store:
    """See the module's docstring."""

    def __init__(self, spec: ModelSpec, owned: Sequence[int]) -> None:
        """Parameters are zero until `initialise` or `set_partition`."""
        self.spec = spec
        self.owned = tuple(sorted(owned))
        self.applied = RangeSet()
        self.pushes = 0
        self._rule = UpdateRule(spec.optimizer)
        self._spaces: list[Space] = [
            TableSpace(spec, number, self.owned)
            if space.vocabulary is None
            else DynamicSpace(spec, number, self.owned)
            for number, space in enumerate(spec.spaces)
        ]
        ranges = [spec.dense_range(partition) for partition in self.owned]
        self._pieces = np.array([stop - start for start, stop in ranges], np.int64)
        ends = np.cumsum(self._pieces)
        self._dense_starts = dict(zip(self.owned, (ends - self._pieces).tolist(), strict=True))
        size = int(self._pieces.sum())
        self._dense = [np.zeros(size, np.float32) for _ in range(1 + spec.optimizer.states)]
        # Updates of the dense parameters, for each partition: it moves with them.
        self._counts = np.zeros(len(self.owned), np.float32) if spec.optimizer.counted else None

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
        counts = 0 if self._counts is None else self._counts.nbytes
        return sum(array.nbytes for array in arrays) + counts

    # ------------------------------------------------------------------ training

    def begin(self) -> Floats:
        """A copy of the dense pieces that are here, in the order of their partitions."""
        return self._dense[0].copy()

    def pull(self, space: int, rows: Rows) -> Floats:
        """The values of rows, (rows, dim). Raises QuestionError: they are not here."""
        here = self._space(space)
        return here.values(rows, here.places_of(rows), self.pushes + 1)

    def ids(self, space: int) -> Rows:
        """The ids that have a row here, ascending. Raises QuestionError: rows have no ids."""
        here = self._space(space)
        if not isinstance(here, DynamicSpace):
            raise BadRequestError(f"space {space} has rows by number, not by id")
        return here.ids(self.pushes + 1)

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
            found.append((space, rows, space.places_of(rows), gradient))
        if dense is not None:
            if dense.shape != self._dense[0].shape:
                raise BadRequestError(
                    f"dense gradients: {dense.size} numbers; {self.dense_size} are here"
                )
            _check_finite(dense, "the dense parameters")
        rate = self.spec.optimizer.rate(slot)
        for space, rows, places, gradient in found:
            taken = space.take_in(rows, places, gradient, self.pushes + 1)
            space.apply(*taken, self._rule, rate)
        if dense is not None:
            self._apply_dense(dense, rate)
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
        arrays += [array[start : start + last - first] for array in self._dense]
        if self._counts is not None:
            place = self.owned.index(partition)
            arrays.append(self._counts[place : place + 1])
        return arrays

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
        for counted in counts_among(self.spec):
            _check_counts(arrays[counted], partition)
        left = list(zip(arrays, here, strict=True))
        for space in self._spaces:
            space.fill(partition, left[: len(space.arrays)])
            left = left[len(space.arrays) :]
        for (array, into), first in zip(left, (0.0, *self.spec.optimizer.initial), strict=True):
            into[...] = first if array is None else array.reshape(into.shape)

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

    def _apply_dense(self, gradient: Floats, rate: float) -> None:
        counts = None
        if self._counts is not None:
            self._counts += 1
            counts = np.repeat(self._counts, self._pieces)
        if gradient.size:
            self._rule.update(self._dense[0], self._dense[1:], counts, gradient, rate)

    def _space(self, number: int) -> Space:
        if not 0 <= number < len(self._spaces):
            raise BadRequestError(f"space {number}; the model has {len(self._spaces)}")
        return self._spaces[number]


def _check_counts(counts: Floats | None, partition: int) -> None:
    if counts is not None and not ((counts >= 0) & (counts <= MAX_UPDATES)).all():
        raise BadRequestError(
            f"partition {partition}: counts of updates that are not from 0 to {MAX_UPDATES}"
        )


def _check_finite(gradient: Floats, of: str) -> None:
    if not np.isfinite(gradient).all():
        raise BadRequestError(f"gradients of {of} that are not finite")


def _check_once(rows: Rows, number: int) -> None:
    """Rows in ascending order, as callers have them anyway, cost almost nothing to check."""
    ascending = (rows[1:] > rows[:-1]).all()
    if not ascending and len(np.unique(rows)) < len(rows):
        raise BadRequestError(f"a row of space {number} that is there twice")
