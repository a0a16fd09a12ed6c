"""A store changes parameters as torch.optim does, each slot once, however they are divided."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.parameter_server.arrays import Sparse, shapes_of
from penstock.parameter_server.server.storage.space import BadRequestError
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    Places,
    SpaceSpec,
    TableSpec,
)

SGD = OptimizerSpec(kind=OptimizerKind.SGD, learning_rate=0.1)
ADAGRAD = OptimizerSpec(
    kind=OptimizerKind.ADAGRAD, learning_rate=0.3, epsilon=1e-8, initial_accumulator=0.1
)
OPTIMIZERS = pytest.mark.parametrize("optimizer", [SGD, ADAGRAD], ids=["sgd", "adagrad"])


def model(optimizer: OptimizerSpec = SGD, rows: int = 50, partitions: int = 7) -> ModelSpec:
    tables = (TableSpec(name="a", rows=rows), TableSpec(name="b", rows=11, deviation=0.01))
    return ModelSpec(
        spaces=(
            SpaceSpec(dim=4, tables=tables),
            SpaceSpec(dim=1, tables=(TableSpec(name="c", rows=3, deviation=0.0),)),
        ),
        dense=(DenseSpec(name="w", shape=(5, 3)), DenseSpec(name="b", shape=(3,))),
        optimizer=optimizer,
        seed=5,
        partitions=partitions,
    )


def whole(spec: ModelSpec) -> Store:
    store = Store(spec, range(spec.partitions))
    store.initialise()
    return store


@OPTIMIZERS
def test_steps_are_those_of_torch(optimizer: OptimizerSpec) -> None:
    spec = ModelSpec(
        spaces=(SpaceSpec(dim=4, tables=(TableSpec(name="a", rows=50),)),),
        dense=(DenseSpec(name="w", shape=(4,)),),
        optimizer=optimizer,
        partitions=7,
    )
    store = whole(spec)
    store.push(0, [], np.linspace(-1, 1, 4, dtype=np.float32))  # dense parameters that are not 0
    every = np.arange(50)
    embedding = torch.nn.Embedding(50, 4)
    weight = torch.nn.Parameter(torch.from_numpy(store.begin()))
    with torch.no_grad():
        embedding.weight.copy_(torch.from_numpy(store.pull(0, every)))
    parameters = [embedding.weight, weight]
    if optimizer is SGD:
        theirs: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=0.1)
    else:
        theirs = torch.optim.Adagrad(parameters, lr=0.3, eps=1e-8, initial_accumulator_value=0.1)
        theirs.state[weight]["sum"] += torch.linspace(-1, 1, 4) ** 2
    generator = np.random.default_rng(1)
    for slot in range(1, 30):
        ids = torch.from_numpy(generator.integers(0, 50, 20))
        theirs.zero_grad()
        (torch.tanh(embedding(ids)) @ weight).sum().backward()
        assert embedding.weight.grad is not None
        assert weight.grad is not None
        rows = ids.unique()
        gradients = [(0, rows.numpy(), embedding.weight.grad[rows].numpy())]
        assert store.push(slot, gradients, weight.grad.numpy())
        theirs.step()
    assert np.allclose(store.pull(0, every), embedding.weight.detach(), rtol=1e-5, atol=1e-6)
    assert np.allclose(store.begin(), weight.detach(), rtol=1e-5, atol=1e-6)


def random_push(
    spec: ModelSpec, seed: int
) -> tuple[list[tuple[int, np.ndarray, np.ndarray]], np.ndarray]:
    generator = np.random.default_rng(seed)
    gradients = []
    for number, space in enumerate(spec.spaces):
        rows = generator.permutation(space.rows)[: generator.integers(0, space.rows + 1)]
        values = generator.standard_normal((len(rows), space.dim), np.float32)
        gradients.append((number, rows, values))
    return gradients, generator.standard_normal(spec.dense_size, np.float32)


def share_of(store: Store, gradients: Sparse, dense: np.ndarray) -> tuple[Sparse, np.ndarray]:
    """What of a push to the whole model belongs to a store."""
    spec = store.spec
    mine = []
    for number, rows, values in gradients:
        inside = np.isin(spec.places[number].of(rows)[0], store.owned)
        mine.append((number, rows[inside], values[inside]))
    pieces = [dense[slice(*spec.dense_range(p))] for p in store.owned]
    return mine, np.concatenate([*pieces, dense[:0]])


def divided(spec: ModelSpec, cuts: Sequence[int]) -> list[Store]:
    """Empty stores; partitions are dealt in turn within each cut, so that owners interleave."""
    owners = np.zeros(spec.partitions, int)
    for cut in cuts:
        owners[cut % spec.partitions :: 2] += 1
    return [Store(spec, np.flatnonzero(owners == owner).tolist()) for owner in range(len(cuts) + 1)]


@given(
    st.sampled_from([SGD, ADAGRAD]),
    st.integers(1, 90),
    st.integers(1, 20),
    st.lists(st.lists(st.integers(0, 30), max_size=4), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_any_division_at_any_time_keeps_every_value(
    optimizer: OptimizerSpec, rows: int, partitions: int, divisions: list[list[int]]
) -> None:
    spec = model(optimizer, rows, partitions)
    one, stores = whole(spec), [whole(spec)]
    slot = 0
    for cuts in divisions:
        fresh = divided(spec, cuts)
        owner = {p: store for store in stores for p in store.owned}
        for store in fresh:
            for partition in store.owned:
                store.set_partition(partition, owner[partition].partition(partition))
        stores = fresh
        for _ in range(3):
            gradients, dense = random_push(spec, slot)
            one.push(slot, gradients, dense)
            for store in stores:
                store.push(slot, *share_of(store, gradients, dense))
            slot += 1
    owner = {p: store for store in stores for p in store.owned}
    for partition in range(partitions):
        pairs = zip(one.partition(partition), owner[partition].partition(partition), strict=True)
        for ours, theirs in pairs:
            assert np.array_equal(ours, theirs)
    assert sum(store.bytes for store in stores) == one.bytes == spec.bytes


def test_a_server_with_some_partitions_begins_as_the_whole_model_does() -> None:
    spec = model(ADAGRAD)
    some, all_of_it = Store(spec, [1, 4, 5]), whole(spec)
    some.initialise()
    for partition in some.owned:
        pairs = zip(some.partition(partition), all_of_it.partition(partition), strict=True)
        for ours, theirs in pairs:
            assert np.array_equal(ours, theirs)


def test_rows_begin_with_the_deviation_of_their_table() -> None:
    tables = tuple(TableSpec(name=str(d), rows=4000, deviation=d) for d in (1.0, 0.0, 0.02))
    spec = ModelSpec(spaces=(SpaceSpec(dim=8, tables=tables),), optimizer=SGD)
    values = whole(spec).pull(0, np.arange(12000))
    found = [values[start:stop].std() for start, stop in pairwise((0, 4000, 8000, 12000))]
    assert found == pytest.approx([1.0, 0.0, 0.02], rel=0.02)
    assert len(np.unique(values[:4000])) > 31_000


def test_a_slot_is_applied_once() -> None:
    store = whole(model())
    gradients, dense = random_push(store.spec, 0)
    assert store.push(3, gradients, dense)
    before = store.snapshot()
    assert not store.push(3, gradients, dense)
    for partition in store.owned:
        for ours, theirs in zip(
            store.partition(partition), before.partition(partition), strict=True
        ):
            assert np.array_equal(ours, theirs)
    assert list(store.applied) == [(3, 4)]
    assert store.pushes == store.version == 1


def test_a_slot_without_gradients_counts() -> None:
    store = whole(model())
    assert store.push(0, [], None)
    assert not store.push(0, [], None)
    assert store.applied.total == 1


def test_nothing_changes_a_snapshot() -> None:
    store = whole(model(ADAGRAD))
    store.push(0, *random_push(store.spec, 0))
    copy = store.snapshot()
    content = [array.copy() for p in copy.owned for array in copy.partition(p)]
    store.push(1, *random_push(store.spec, 1))
    now = [array for p in copy.owned for array in copy.partition(p)]
    assert all(np.array_equal(one, other) for one, other in zip(content, now, strict=True))
    assert (list(copy.applied), copy.pushes) == ([(0, 1)], 1)


def test_arrays_that_are_left_out_get_their_initial_content_again() -> None:
    store = whole(model(ADAGRAD))
    fresh = whole(model(ADAGRAD))
    store.push(0, *random_push(store.spec, 0))
    kept = store.partition(2)[0].copy()
    arrays: list[np.ndarray | None] = [None] * len(shapes_of(store.spec, 2))
    arrays[0] = kept
    store.set_partition(2, arrays)
    assert np.array_equal(store.partition(2)[0], kept)
    for ours, theirs in zip(store.partition(2)[1:], fresh.partition(2)[1:], strict=True):
        assert np.array_equal(ours, theirs)


ONE = np.ones((1, 4), np.float32)
BAD: list[tuple[str, Sparse, np.ndarray | None]] = [
    ("is there twice", [(0, np.array([5, 2, 5]), np.ones((3, 4), np.float32))], None),
    ("space that is there twice", [(0, np.array([5]), ONE), (0, np.array([6]), ONE)], None),
    ("shape", [(0, np.array([5]), np.ones((1, 3), np.float32))], None),
    ("shape", [(0, np.array([5, 6]), ONE)], None),
    ("space 2", [(2, np.array([0]), ONE)], None),
    ("space -1", [(-1, np.array([0]), ONE)], None),
    ("rows -1 to -1", [(0, np.array([-1]), ONE)], None),
    ("which has 61", [(0, np.array([61]), ONE)], None),
    ("not finite", [(0, np.array([0]), ONE * np.nan)], None),
    ("not finite", [(0, np.array([0]), ONE)], np.full(18, np.inf, np.float32)),
    ("17 numbers; 18 are here", [(0, np.array([0]), ONE)], np.zeros(17, np.float32)),
]


@pytest.mark.parametrize(("text", "gradients", "dense"), BAD)
def test_a_bad_push_changes_nothing(text: str, gradients: Sparse, dense: np.ndarray | None) -> None:
    store = whole(model())
    before = store.snapshot()
    with pytest.raises(BadRequestError, match=text):
        store.push(0, gradients, dense)
    assert not store.applied
    for partition in store.owned:
        for ours, theirs in zip(
            store.partition(partition), before.partition(partition), strict=True
        ):
            assert np.array_equal(ours, theirs)


def test_rows_of_other_servers_are_refused() -> None:
    spec = model()
    store = Store(spec, [0, 1])
    elsewhere = Places(spec.spaces[0].rows, spec.partitions).rows_of(2)[:1]
    with pytest.raises(BadRequestError, match="not here"):
        store.pull(0, elsewhere)
    with pytest.raises(BadRequestError, match="not here"):
        store.push(0, [(0, elsewhere, ONE)], None)
    with pytest.raises(BadRequestError, match="partition 2 is not here"):
        store.partition(2)
    with pytest.raises(BadRequestError, match="numbers where"):
        store.set_partition(0, [np.zeros(1, np.float32)] * len(shapes_of(store.spec, 0)))


def test_a_store_without_partitions_or_parameters_works() -> None:
    empty = Store(model(), [])
    assert empty.push(0, [], np.zeros(0, np.float32))
    assert empty.begin().size == 0
    nothing = whole(ModelSpec(optimizer=SGD))
    assert nothing.push(0, [], None)
