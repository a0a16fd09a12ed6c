"""A table keyed by ids does what a table of plain Python objects does, however it is divided."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.job.protocol import DataSpec
from penstock.parameter_server.arrays import Floats
from penstock.parameter_server.buckets import BUCKET_ROWS, Buckets, first_values
from penstock.parameter_server.server.storage.space import BadRequestError
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import (
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
    Vocabulary,
)
from penstock.parameter_server.worker.checkpoint import ModelFiles

DIM, RATE = 2, 0.5
IDS: Final = np.array([-(1 << 63), -7, -1, 0, 1, 2, 3, 5, 77, 10**9, (1 << 63) - 1], np.int64)
Push = dict[int, int]
"""For each of some ids, by its place in `IDS`, a gradient."""


def model(
    vocabulary: Vocabulary,
    capacity: int = 6,
    partitions: int = 2,
    kind: OptimizerKind = OptimizerKind.SGD,
) -> ModelSpec:
    table = TableSpec(name="user", rows=capacity, deviation=0.1)
    return ModelSpec(
        spaces=(SpaceSpec(dim=DIM, tables=(table,), vocabulary=vocabulary),),
        optimizer=OptimizerSpec(kind=kind, learning_rate=RATE),
        partitions=partitions,
    )


def whole(spec: ModelSpec) -> Store:
    store = Store(spec, range(spec.partitions))
    store.initialise()
    return store


@dataclass
class Entry:
    """What is known of an id, in one place of a bucket."""

    id: int
    seen: int
    sightings: int = 1
    values: Floats = field(default_factory=lambda: np.zeros(DIM, np.float32))


class PlainTable:
    """The rules of `Vocabulary`, one id after the other."""

    def __init__(self, spec: ModelSpec, fresh: dict[int, Floats]) -> None:
        [space] = spec.spaces
        assert space.vocabulary is not None
        self.rules, self.fresh, self.update = space.vocabulary, fresh, 0
        self.places = Buckets(space.rows, spec.partitions)
        self.rows: dict[object, list[Entry | None]] = {}
        self.candidates: dict[object, list[Entry | None]] = {}

    def bucket(self, kind: dict[object, list[Entry | None]], id_: int) -> list[Entry | None]:
        partition, start = self.places.of(np.array([id_], np.int64))
        key = (int(partition[0]), int(start[0]))
        return kind.setdefault(key, [None] * self.places.width)

    def find(self, kind: dict[object, list[Entry | None]], id_: int, update: int) -> Entry | None:
        for entry in self.bucket(kind, id_):
            if entry is not None and entry.id == id_ and self.age(entry, update):
                return entry
        return None

    def age(self, entry: Entry | None, update: int) -> int:
        if entry is None or not entry.seen:
            return 0
        bound = self.rules.evict_after
        return 0 if bound is not None and update - entry.seen > bound else entry.seen

    def claim(self, kind: dict[object, list[Entry | None]], entry: Entry) -> bool:
        bucket = self.bucket(kind, entry.id)
        ages = [self.age(other, entry.seen) for other in bucket]
        oldest = min(range(len(bucket)), key=lambda place: ages[place])
        if ages[oldest] >= entry.seen:
            return False
        bucket[oldest] = entry
        return True

    def push(self, gradients: dict[int, float]) -> None:
        self.update = update = self.update + 1
        found = {id_: self.find(self.rows, id_, update) for id_ in sorted(gradients)}
        for row in found.values():
            if row is not None:
                row.seen = update
        absent = [id_ for id_, row in found.items() if row is None]
        known = {id_: self.find(self.candidates, id_, update) for id_ in absent}
        new = []
        for id_ in absent:
            candidate = known[id_]
            enough = (candidate.sightings if candidate else 0) + 1 >= self.rules.admit_after
            row = Entry(id_, update, values=self.fresh[id_].copy())
            if enough and self.claim(self.rows, row):
                found[id_] = row
                if candidate is not None:
                    candidate.seen = 0
            elif candidate is not None:
                candidate.seen, candidate.sightings = update, candidate.sightings + 1
            else:
                new.append(id_)
        if self.rules.admit_after > 1:
            for id_ in new:
                self.claim(self.candidates, Entry(id_, update))
        for id_, row in found.items():
            if row is not None:
                row.values -= np.float32(RATE) * np.full(DIM, gradients[id_], np.float32)

    def read(self, id_: int) -> Floats:
        row = self.find(self.rows, id_, self.update + 1)
        if row is not None:
            return row.values
        candidate = self.find(self.candidates, id_, self.update + 1)
        enough = (candidate.sightings if candidate else 0) + 1 >= self.rules.admit_after
        return self.fresh[id_] if enough else np.zeros(DIM, np.float32)

    def ids(self) -> list[int]:
        update = self.update + 1
        rows = [row for bucket in self.rows.values() for row in bucket]
        return sorted(row.id for row in rows if row is not None and self.age(row, update))


def divided(stores: list[Store], spec: ModelSpec, owners: list[int]) -> list[Store]:
    """The partitions, dealt anew."""
    had = {p: store for store in stores for p in store.owned}
    dealt = []
    for owner in sorted(set(owners)):
        store = Store(spec, [p for p, mine in enumerate(owners) if mine == owner])
        for partition in store.owned:
            store.set_partition(partition, had[partition].partition(partition))
        store.applied, store.pushes = stores[0].applied.copy(), stores[0].pushes
        dealt.append(store)
    return dealt


PUSHES = st.dictionaries(st.integers(0, len(IDS) - 1), st.integers(-3, 3), max_size=8)
STEPS = st.lists(PUSHES | st.lists(st.integers(0, 1), min_size=2, max_size=2), max_size=24)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 3), st.none() | st.integers(1, 4))
def test_ids_come_are_counted_and_go_as_in_a_plain_table(
    steps: list[Push | list[int]], admit_after: int, evict_after: int | None
) -> None:
    """A list deals the partitions to servers anew."""
    spec = model(Vocabulary(admit_after=admit_after, evict_after=evict_after))
    stores = [whole(spec)]
    one = model(Vocabulary(admit_after=1))
    fresh = dict(zip(IDS.tolist(), whole(one).pull(0, IDS), strict=True))
    plain = PlainTable(spec, fresh)
    for slot, step in enumerate(steps):
        if isinstance(step, list):
            stores = divided(stores, spec, step)
            continue
        plain.push({int(IDS[place]): gradient for place, gradient in step.items()})
        for store in stores:
            here = [p for p in step if spec.places[0].of(IDS[[p]])[0][0] in store.owned]
            values = np.array([step[p] for p in here], np.float32)[:, None].repeat(DIM, axis=1)
            gradients = [(0, IDS[here], values)]
            assert store.push(slot, gradients, None)
            assert not store.push(slot, gradients, None), "a repetition"
    assert sorted(id_ for store in stores for id_ in store.ids(0).tolist()) == plain.ids()
    for store in stores:
        for id_ in IDS:
            ids = np.array([id_])
            if spec.places[0].of(ids)[0][0] in store.owned:
                assert np.array_equal(store.pull(0, ids)[0], plain.read(int(id_))), id_
    assert sum(store.bytes for store in stores) == spec.bytes


@given(st.integers(1, 100_000), st.integers(1, 200))
def test_buckets_hold_the_capacity_and_little_more(capacity: int, partitions: int) -> None:
    buckets = Buckets(capacity, partitions)
    assert capacity <= buckets.rows < capacity + partitions * BUCKET_ROWS
    partition, index = buckets.of(np.arange(1000, dtype=np.int64))
    assert (partition < partitions).all()
    assert (index + buckets.width <= buckets.count(0)).all()


def test_first_values_are_noise_that_depends_on_seed_and_id_alone() -> None:
    ids = np.arange(-5000, 5000, dtype=np.int64)
    values = first_values(3, ids, 8, 0.5)
    assert np.array_equal(first_values(3, ids[::-1].copy(), 8, 0.5)[::-1], values)
    assert values.std() == pytest.approx(0.5, rel=0.02)
    assert abs(values.mean()) < 0.01
    assert abs(np.corrcoef(values.T) - np.eye(8)).max() < 0.05
    assert (first_values(4, ids, 8, 0.5) == values).mean() < 1e-3


def test_a_full_table_has_its_capacity_at_three_quarters_load() -> None:
    """What buckets cost: at that load less than one id in twenty has no room of its own."""
    spec = model(Vocabulary(), capacity=32_768, partitions=16)
    store = whole(spec)
    ids = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, 24_576)
    for part in np.array_split(np.unique(ids), 8):
        store.push(store.pushes, [(0, part, np.ones((len(part), DIM), np.float32))], None)
    assert len(store.ids(0)) > 0.95 * len(ids)


@pytest.mark.parametrize("partitions", [1, 5])
def test_a_checkpoint_of_another_number_of_partitions_has_the_same_ids(
    partitions: int, tmp_path: Path
) -> None:
    rules = Vocabulary(admit_after=2)
    spec = model(rules, 200, 3, OptimizerKind.ADAM)
    store, chance = whole(spec), np.random.default_rng(1)
    for slot in range(9):
        ids = np.unique(chance.integers(-60, 60, 40))
        store.push(slot, [(0, ids, chance.standard_normal((len(ids), DIM), np.float32))], None)
    data = DataSpec(dataset_size=9, global_batch=1, epochs=2, slots_per_step=1)
    files = ModelFiles(tmp_path, spec, data)
    saved = files.write(store.applied, store.pushes, map(store.partition, range(3)))
    other = whole(model(rules, 200, partitions, OptimizerKind.ADAM))
    file = ModelFiles(tmp_path, other.spec, data).open(saved)
    for partition in range(partitions):
        other.set_partition(partition, file.partition(partition))
    other.applied, other.pushes = file.applied, file.pushes
    every = np.arange(-60, 60)
    for slot in range(9, 12):
        assert other.ids(0).tolist() == store.ids(0).tolist()
        assert np.array_equal(other.pull(0, every), store.pull(0, every))
        for one in (store, other):  # states, counts and sightings came along
            one.push(slot, [(0, every, np.ones((120, DIM), np.float32))], None)


def test_rows_of_plain_tables_have_no_ids() -> None:
    spec = ModelSpec(
        spaces=(SpaceSpec(dim=1, tables=(TableSpec(name="a", rows=2),)),),
        optimizer=OptimizerSpec(kind=OptimizerKind.SGD, learning_rate=1.0),
    )
    with pytest.raises(BadRequestError, match="by number, not by id"):
        whole(spec).ids(0)
    tables = (TableSpec(name="a", rows=2), TableSpec(name="b", rows=2))
    with pytest.raises(ValueError, match="one that is keyed by ids is alone"):
        SpaceSpec(dim=1, tables=tables, vocabulary=Vocabulary())
