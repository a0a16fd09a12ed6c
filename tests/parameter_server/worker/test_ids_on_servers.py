"""Tables keyed by ids, and an optimizer that counts, on servers between which they move."""

from __future__ import annotations

import numpy as np

from penstock.parameter_server.arrays import Gradients, afresh
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
    Vocabulary,
)
from penstock.parameter_server.worker.chief import Filler
from penstock.parameter_server.worker.client import ParameterClient, Pushed
from tests.parameter_server.running_servers import TOKEN, running

SPEC = ModelSpec(
    spaces=(
        SpaceSpec(
            dim=3,
            tables=(TableSpec(name="user", rows=300, deviation=0.1),),
            vocabulary=Vocabulary(admit_after=2, evict_after=5),
        ),
        SpaceSpec(dim=3, tables=(TableSpec(name="item", rows=40),)),
    ),
    dense=(DenseSpec(name="w", shape=(5, 3)),),
    optimizer=OptimizerSpec(kind=OptimizerKind.ADAMW, learning_rate=0.1, weight_decay=0.1),
    seed=3,
    partitions=16,
)
DENSE = np.linspace(-1, 1, SPEC.dense_size, dtype=np.float32)
IDS = np.arange(-90, 90) * (1 << 55)


def push(one: ParameterClient | Store, slot: int) -> bool:
    chance = np.random.default_rng(slot)
    ids = IDS[np.sort(chance.permutation(len(IDS))[:50])]
    items = np.sort(chance.permutation(40)[:9])
    sparse = [
        Gradients(0, ids, chance.standard_normal((50, 3), np.float32)),
        Gradients(1, items, chance.standard_normal((9, 3), np.float32)),
    ]
    dense = chance.standard_normal(SPEC.dense_size, np.float32)
    return one.push(slot, sparse, dense) in (True, Pushed.APPLIED)


def test_moves_change_no_bit_of_ids_rows_and_dense_parameters() -> None:
    store = Store(SPEC, range(SPEC.partitions))
    for partition in range(SPEC.partitions):
        store.set_partition(partition, afresh(SPEC, partition, DENSE))
    with running(SPEC) as there:
        there.start(0, 1, 2)
        chief = Filler(SPEC, TOKEN, "worker-0.0", DENSE, None)
        there.fill(lambda layout: chief.fill(layout, None), 0, 1)
        servers = ParameterClient(SPEC, TOKEN, "worker-0.0", there.present)
        slot = 0
        for ranks in ((0, 1, 2), (2,), (0, 2)):
            for _ in range(6):
                assert push(servers, slot)
                assert not push(servers, slot), "a repetition"
                push(store, slot)
                slot += 1
            there.move(*ranks)
            assert 0 < len(store.ids(0)) < len(IDS)
            assert np.array_equal(servers.ids(0), store.ids(0))
            everything = [(0, IDS), (1, np.arange(40))]
            for values, (space, rows) in zip(servers.pull(everything), everything, strict=True):
                assert np.array_equal(values, store.pull(space, rows))
            dense = servers.begin(None)
            assert dense is not None
            assert np.array_equal(dense, store.begin())
        servers.close()
