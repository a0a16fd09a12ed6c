"""A table that is keyed by ids: rows are made when an id has been seen often enough, and go.

The rows are as many as the table's capacity, so its memory is bounded and known beforehand. Each id
belongs to one bucket of them, by its hash. In a full bucket a new id takes the place of the row
that was seen least recently.

Invariant: what becomes of an id depends on the gradients of the ids of its bucket, their order and
the numbers of those updates, and on the seed: on nothing that lies beside the bucket.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.data.ledger.permutation import derive_seed
from penstock.parameter_server.arrays import Floats, Rows
from penstock.parameter_server.buckets import Buckets, first_values
from penstock.parameter_server.server.storage.space import Space
from penstock.parameter_server.spec import ModelSpec, Vocabulary

ABSENT = -1


class Keys:
    """Ids in buckets: int64 columns of the id and the update that saw it last, 0 for no id."""

    def __init__(self, columns: NDArray[np.int64], width: int, evict_after: int | None) -> None:
        """``width``: places of a bucket."""
        self.ids, self.seen = columns[:, 0], columns[:, 1]
        self._bucket = np.arange(width)
        self._evict_after = evict_after

    def alive(self, places: Rows, update: int) -> NDArray[np.bool_]:
        """Whether places have an id that has not gone by the time of an update."""
        seen = self.seen[places]
        if self._evict_after is None:
            return seen > 0
        return (seen > 0) & (update - seen <= self._evict_after)

    def find(self, ids: Rows, buckets: Rows, update: int) -> Rows:
        """The place of each id; ABSENT: it has none. ``buckets``: where that of each begins."""
        window = buckets[:, None] + self._bucket
        here = (self.ids[window] == ids[:, None]) & self.alive(window, update)
        return np.where(here.any(axis=1), buckets + here.argmax(axis=1), ABSENT)

    def claim(self, ids: Rows, buckets: Rows, update: int) -> Rows:
        """Places for ids that have none, each there once; the oldest go first.

        ABSENT where a bucket has no place left that this update has not touched. By ascending ids,
        whatever their order here.
        """
        order = np.lexsort((ids, buckets))
        sorted_buckets, number = buckets[order], np.arange(len(ids))
        first = np.ones(len(ids), bool)
        first[1:] = sorted_buckets[1:] != sorted_buckets[:-1]
        rank = number - np.maximum.accumulate(np.where(first, number, 0))
        window = sorted_buckets[first][:, None] + self._bucket
        age = np.where(self.alive(window, update), self.seen[window], 0)
        oldest = np.argsort(age, axis=1, kind="stable")
        fits = np.flatnonzero(rank < len(self._bucket))
        group = np.cumsum(first)[fits] - 1
        chosen = oldest[group, rank[fits]]
        places = np.full(len(ids), ABSENT)
        places[order[fits]] = np.where(age[group, chosen] < update, window[group, chosen], ABSENT)
        kept = places >= 0
        self.ids[places[kept]], self.seen[places[kept]] = ids[kept], update
        return places


class DynamicSpace(Space):
    """The rows of one table that is keyed by ids; see the module's docstring."""

    def __init__(self, spec: ModelSpec, number: int, owned: Sequence[int]) -> None:
        super().__init__(spec, number, owned)
        places, space = spec.places[number], spec.spaces[number]
        assert isinstance(places, Buckets), "a space with a vocabulary"
        assert space.vocabulary is not None
        self._vocabulary: Vocabulary = space.vocabulary
        self._deviation = space.tables[0].deviation
        name = hashlib.blake2b(space.tables[0].name.encode(), digest_size=8).digest()
        self._seed = derive_seed(spec.seed, int.from_bytes(name, "little"))
        trained = 1 + len(spec.optimizer.initial)
        columns = [array.view(np.int64) for array in self.arrays[trained:]]
        after = self._vocabulary.evict_after
        self._keys = Keys(columns[0], places.width, after)
        self._candidates = Keys(columns[1], places.width, after) if columns[1:] else None
        self._sightings = columns[1][:, 2] if columns[1:] else None

    def places_of(self, rows: Rows) -> Rows:
        """Where the bucket of each id begins."""
        return self._indices(*self._places.of(rows))

    def values(self, rows: Rows, places: Rows, update: int) -> Floats:
        """The values of ids; without a row: what it will begin with, or 0 if that is later."""
        found = self._keys.find(rows, places, update)
        values: Floats = self.arrays[0].take(np.maximum(found, 0), axis=0)
        absent = np.flatnonzero(found < 0)
        if absent.size:
            ids = rows[absent]
            values[absent] = first_values(self._seed, ids, self.dim, self._deviation)
            sightings = self._counted(ids, places[absent], update)
            values[absent[sightings < self._vocabulary.admit_after]] = 0.0
        return values

    def take_in(
        self, rows: Rows, places: Rows, gradient: Floats, update: int
    ) -> tuple[Rows, Floats]:
        """Make rows for the ids that get one with this gradient; the others' are dropped."""
        found = self._keys.find(rows, places, update)
        self._keys.seen[found[found >= 0]] = update
        absent = np.flatnonzero(found < 0)
        if absent.size:
            found[absent] = self._admitted(rows[absent], places[absent], update)
        here = found >= 0
        return found[here], gradient[here]

    def ids(self, update: int) -> Rows:
        """All ids that have a row, in ascending order."""
        every = np.arange(len(self.arrays[0]))
        return np.sort(self._keys.ids[every[self._keys.alive(every, update)]])

    def initial(self, partition: int) -> Floats:
        """As `Space.initial`: there are no rows yet."""
        return np.zeros((self._places.count(partition), self.dim), np.float32)

    def _counted(self, ids: Rows, buckets: Rows, update: int) -> Rows:
        """How often ids without a row will have been seen with one update more."""
        sightings = np.ones(len(ids), np.int64)
        if self._candidates is not None and self._sightings is not None:
            found = self._candidates.find(ids, buckets, update)
            sightings[found >= 0] += self._sightings[found[found >= 0]]
        return sightings

    def _admitted(self, ids: Rows, buckets: Rows, update: int) -> Rows:
        """The new places of ids without a row; ABSENT: none yet."""
        places = np.full(len(ids), ABSENT)
        enough = self._counted(ids, buckets, update) >= self._vocabulary.admit_after
        places[enough] = made = self._keys.claim(ids[enough], buckets[enough], update)
        kept = made[made >= 0]
        values, *others = self._trained
        values[kept] = first_values(self._seed, self._keys.ids[kept], self.dim, self._deviation)
        for array, first in zip(others, self.spec.optimizer.initial, strict=True):
            array[kept] = first
        self._note(ids, buckets, places, update)
        return places

    def _note(self, ids: Rows, buckets: Rows, places: Rows, update: int) -> None:
        """Count the sightings of ids that still have no row, and forget those that have."""
        if self._candidates is None or self._sightings is None:
            return
        found = self._candidates.find(ids, buckets, update)
        self._candidates.seen[found[(found >= 0) & (places >= 0)]] = 0
        again = found[(found >= 0) & (places < 0)]
        self._candidates.seen[again] = update
        self._sightings[again] += 1
        new = (found < 0) & (places < 0)
        made = self._candidates.claim(ids[new], buckets[new], update)
        self._sightings[made[made >= 0]] = 1
