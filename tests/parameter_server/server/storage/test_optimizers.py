"""Every rule does what torch.optim does, and moves and losses of servers change no bit of it.

The model is torch.optim with one ``Parameter`` for each row, which has a gradient only in the
batches that look it up: what `OptimizerSpec` promises of rows. Beside it one store that is never
divided: against torch the results agree to rounding, against that store in every bit.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.parameter_server.arrays import Floats, Sparse
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.server.storage.update_rule import Correction
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
)

ROWS, DIM, DENSE, PARTITIONS = 9, 3, 7, 4
KINDS: Final = OptimizerKind
RULES: Final[dict[str, tuple[OptimizerSpec, type[torch.optim.Optimizer], dict[str, Any]]]] = {
    "sgd": (
        OptimizerSpec(kind=KINDS.SGD, learning_rate=0.1, weight_decay=0.1),
        torch.optim.SGD,
        {"lr": 0.1, "weight_decay": 0.1},
    ),
    "momentum": (
        OptimizerSpec(kind=KINDS.SGD, learning_rate=0.1, momentum=0.9),
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9},
    ),
    "nesterov": (
        OptimizerSpec(
            kind=KINDS.SGD, learning_rate=0.1, momentum=0.8, nesterov=True, weight_decay=0.01
        ),
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01},
    ),
    "adagrad": (
        OptimizerSpec(
            kind=KINDS.ADAGRAD, learning_rate=0.1, initial_accumulator=0.1, weight_decay=0.1
        ),
        torch.optim.Adagrad,
        {"lr": 0.1, "initial_accumulator_value": 0.1, "weight_decay": 0.1},
    ),
    "adam": (
        OptimizerSpec(kind=KINDS.ADAM, learning_rate=0.05, epsilon=1e-8, weight_decay=0.1),
        torch.optim.Adam,
        {"lr": 0.05, "weight_decay": 0.1},
    ),
    "adamw": (
        OptimizerSpec(
            kind=KINDS.ADAMW,
            learning_rate=0.05,
            epsilon=1e-8,
            beta1=0.3,
            beta2=0.99,
            weight_decay=0.2,
        ),
        torch.optim.AdamW,
        {"lr": 0.05, "betas": (0.3, 0.99), "weight_decay": 0.2},
    ),
}


def model(optimizer: OptimizerSpec) -> ModelSpec:
    return ModelSpec(
        spaces=(SpaceSpec(dim=DIM, tables=(TableSpec(name="a", rows=ROWS),)),),
        dense=(DenseSpec(name="w", shape=(DENSE,)),),
        optimizer=optimizer,
        partitions=PARTITIONS,
    )


def whole(spec: ModelSpec) -> Store:
    store = Store(spec, range(spec.partitions))
    store.initialise()
    return store


class Torch:
    """torch.optim, beginning where a store is."""

    def __init__(self, rule: str, store: Store) -> None:
        _, kind, fields = RULES[rule]
        values = store.pull(0, np.arange(ROWS))
        self.rows = [torch.nn.Parameter(torch.from_numpy(row.copy())) for row in values]
        self.dense = torch.nn.Parameter(torch.from_numpy(store.begin()))
        self.optimizer = kind([*self.rows, self.dense], **fields)

    def step(self, rows: np.ndarray, gradient: Floats, dense: Floats | None) -> None:
        self.optimizer.zero_grad()
        for row, mine in zip(rows, gradient, strict=True):
            self.rows[row].grad = torch.from_numpy(mine.copy())
        self.dense.grad = None if dense is None else torch.from_numpy(dense.copy())
        self.optimizer.step()

    def assert_close(self, store: Store) -> None:
        rows = torch.stack([row.detach() for row in self.rows])
        ours = torch.from_numpy(store.pull(0, np.arange(ROWS)))
        torch.testing.assert_close(ours, rows, rtol=2e-5, atol=2e-6)
        torch.testing.assert_close(
            torch.from_numpy(store.begin()), self.dense.detach(), rtol=2e-5, atol=2e-6
        )


class Servers:
    """Stores that share the partitions of one model."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.stores = [whole(spec)]

    def copy(self) -> Servers:
        """The same, in memory of its own."""
        other = Servers(self.spec)
        other.stores = [store.snapshot() for store in self.stores]
        return other

    def move(self, owners: list[int]) -> None:
        """Deal the partitions anew."""
        had = {p: store for store in self.stores for p in store.owned}
        applied, pushes = self.stores[0].applied, self.stores[0].pushes
        self.stores = []
        for owner in sorted(set(owners)):
            store = Store(self.spec, [p for p, mine in enumerate(owners) if mine == owner])
            for partition in store.owned:
                store.set_partition(partition, had[partition].partition(partition))
            store.applied, store.pushes = applied.copy(), pushes
            self.stores.append(store)

    def push(self, slot: int, gradients: Sparse, dense: Floats | None) -> None:
        for store in self.stores:
            mine: Sparse = [
                (space, rows[here], values[here])
                for space, rows, values in gradients
                for here in [np.isin(self.spec.places[space].of(rows)[0], store.owned)]
            ]
            pieces = [
                dense[slice(*self.spec.dense_range(p))] for p in store.owned if dense is not None
            ]
            assert store.push(slot, mine, None if dense is None else np.concatenate(pieces))
            assert not store.push(slot, mine, None), "a repetition"

    def assert_same(self, one: Store) -> None:
        for store in self.stores:
            for partition in store.owned:
                pairs = zip(store.partition(partition), one.partition(partition), strict=True)
                for ours, theirs in pairs:
                    assert np.array_equal(ours, theirs)


def random_push(seed: int) -> tuple[np.ndarray, Floats, Floats | None]:
    chance = np.random.default_rng(seed)
    rows = np.sort(chance.permutation(ROWS)[: chance.integers(0, ROWS)])
    dense = chance.standard_normal(DENSE, np.float32) if chance.random() < 0.8 else None
    return rows, chance.standard_normal((len(rows), DIM), np.float32), dense


DISTURBANCES: Final = 20
MOVES = st.lists(st.integers(0, 2), min_size=PARTITIONS, max_size=PARTITIONS)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.none() | MOVES, min_size=DISTURBANCES, max_size=DISTURBANCES),
    st.integers(0, 1 << 30),
)
def test_twenty_moves_and_kills_leave_what_torch_makes_of_the_surviving_batches(
    rule: str, disturbances: list[list[int] | None], seed: int
) -> None:
    """None kills a server: all goes back to the last checkpoint, which every fourth move writes."""
    spec = model(RULES[rule][0])
    one, servers = whole(spec), Servers(spec)
    theirs = Torch(rule, one)
    saved = (one.snapshot(), servers.copy(), copy.deepcopy(theirs))
    slot = 0
    for number, owners in enumerate(disturbances):
        for _ in range(2):
            rows, gradient, dense = random_push(seed + slot)
            one.push(slot, [(0, rows, gradient)], dense)
            servers.push(slot, [(0, rows, gradient)], dense)
            theirs.step(rows, gradient, dense)
            slot += 1
        if owners is None:
            one, servers, theirs = saved[0].snapshot(), saved[1].copy(), copy.deepcopy(saved[2])
        else:
            servers.move(owners)
        if number % 4 == 3:
            saved = (one.snapshot(), servers.copy(), copy.deepcopy(theirs))
        servers.assert_same(one)
    theirs.assert_close(one)
    assert sum(store.bytes for store in servers.stores) == one.bytes == spec.bytes


def test_corrections_are_those_of_any_count_and_end_at_one() -> None:
    for beta in (0.0, 0.9, 0.999):
        counts = np.array([[1], [2], [300], [40_000], [1 << 24]], np.float32)
        found = Correction(beta).of(counts)
        assert found.shape == counts.shape
        assert found.ravel().tolist() == [1 - beta ** int(count) for count in counts.ravel()]


@pytest.mark.parametrize("count", [-1.0, np.nan, np.inf, 2.0**25])
@pytest.mark.parametrize("place", [3, 7])
def test_counts_that_cannot_be_are_refused(count: float, place: int) -> None:
    """3 are those of the rows, 7 that of the dense parameters."""
    store = whole(model(RULES["adam"][0]))
    arrays = [array.copy() for array in store.partition(1)]
    arrays[place].fill(count)
    with pytest.raises(ValueError, match="partition 1: counts of updates that are not from 0"):
        store.set_partition(1, arrays)


def test_a_row_that_is_rare_begins_with_whole_steps() -> None:
    """With a count for the table its first step would be three times the rate."""
    store = whole(model(OptimizerSpec(kind=KINDS.ADAM, learning_rate=0.5, epsilon=0.0)))
    for slot in range(50):
        store.push(slot, [(0, np.array([1]), np.ones((1, DIM), np.float32))], None)
    before = store.pull(0, np.array([2]))
    store.push(50, [(0, np.array([2]), np.full((1, DIM), 0.01, np.float32))], None)
    assert np.allclose(before - store.pull(0, np.array([2])), 0.5, rtol=1e-5)
