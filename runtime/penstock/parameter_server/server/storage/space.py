"""The rows of one space that are in the partitions of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.data.ledger.permutation import derive_seed
from penstock.parameter_server.arrays import Floats, Rows
from penstock.parameter_server.server.storage.update_rule import UpdateRule
from penstock.parameter_server.spec import FLOAT_BYTES, ModelSpec, Places, SpaceSpec

_ELSEWHERE: Final = -(1 << 62)


class BadRequestError(ValueError):
    """A request that this store cannot answer, whoever asks; says what is wrong with it."""


class Space(ABC):
    """Arrays with the rows of all partitions, one after the other: values, states, counts."""

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
        widths = spec.widths(number)
        self.arrays = [np.zeros((size, width), np.float32) for width in widths]
        # One opaque number per row: NumPy then stores rows by copying each at once, in a third to
        # two thirds of the time that its loop over two dimensions takes.
        trained = 1 + len(spec.optimizer.initial)
        self._trained = self.arrays[:trained]
        self._by_row = [
            array.view(np.dtype((np.void, width * FLOAT_BYTES))).ravel()
            for array, width in zip(self._trained, widths, strict=False)
        ]

    @abstractmethod
    def places_of(self, rows: Rows) -> Rows:
        """Where rows are in the arrays. Raises BadRequestError: they are not here."""

    @abstractmethod
    def values(self, rows: Rows, places: Rows, update: int) -> Floats:
        """The values of rows, (rows, dim); ``update``: number of the next one."""

    @abstractmethod
    def take_in(
        self, rows: Rows, places: Rows, gradient: Floats, update: int
    ) -> tuple[Rows, Floats]:
        """Where the gradients of some rows go, and those that go there."""

    @abstractmethod
    def initial(self, partition: int) -> Floats:
        """The values of a partition's rows before the first update: by seed, wherever they are."""

    def apply(self, places: Rows, gradient: Floats, rule: UpdateRule, rate: float) -> None:
        """Make one step along the gradient of some rows, each there once."""
        arrays = [array.take(places, axis=0) for array in self._trained]
        values, *states = arrays
        counts = states.pop() if self.spec.optimizer.counted else None
        if counts is not None:
            counts += 1
        rule.update(values, states, counts, gradient, rate)
        for array, by_row in zip(arrays, self._by_row, strict=True):
            by_row[places] = array.view(by_row.dtype).ravel()

    def partition(self, partition: int) -> list[Floats]:
        """The rows of one partition in each array."""
        start = int(self._starts[partition])
        stop = start + self._places.count(partition)
        return [array[start:stop] for array in self.arrays]

    def fill(self, partition: int, arrays: Sequence[tuple[Floats | None, Floats]]) -> None:
        """Give arrays of a partition their content: each with what it becomes; None: initial."""
        firsts = self.spec.optimizer.initial
        for kind, (array, into) in enumerate(arrays):
            if array is not None:
                into[...] = array.reshape(into.shape)
            elif kind == 0:
                into[...] = self.initial(partition)
            else:
                into.fill(firsts[kind - 1] if kind <= len(firsts) else 0.0)

    def _indices(self, partition: Rows, index: Rows) -> Rows:
        index += self._starts.take(partition)
        if index.size and index.min() < 0:
            raise BadRequestError(f"rows of space {self.number} that are not here")
        return index


class TableSpace(Space):
    """The rows of tables of one width."""

    def places_of(self, rows: Rows) -> Rows:
        """As `Space.places_of`."""
        if not len(rows):
            return rows
        if rows.view(np.uint64).max() >= self._places.rows:  # negative ones are beyond, too
            raise BadRequestError(
                f"rows {rows.min()} to {rows.max()} of space {self.number}, which has "
                f"{self._places.rows}"
            )
        return self._indices(*self._places.of(rows))

    def values(self, rows: Rows, places: Rows, update: int) -> Floats:
        """As `Space.values`."""
        values: Floats = self.arrays[0].take(places, axis=0)
        return values

    def take_in(
        self, rows: Rows, places: Rows, gradient: Floats, update: int
    ) -> tuple[Rows, Floats]:
        """As `Space.take_in`: all of them."""
        return places, gradient

    def initial(self, partition: int) -> Floats:
        """As `Space.initial`."""
        assert isinstance(self._places, Places), "a space without a vocabulary"
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
