"""All datasets that a data worker makes for jobs that share divide one window."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.data.errors import DataError
from penstock.data.pipeline import Pipeline
from penstock.data.serving.consumer_connection import ConsumerConnection, Request
from penstock.data.serving.shared.shared_pools import MAX_SHARED, SharedPools
from penstock.data.sharing.pipeline import SharedPipeline, lacks_bytes

TILES = 40
SAMPLE_BYTES = 1000
WINDOW = 12 * SAMPLE_BYTES


class Rows:
    def __len__(self) -> int:
        return TILES

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(SAMPLE_BYTES, index, np.uint8)


def dataset(number: int, *, common: bool = False) -> tuple[bytes, SharedPipeline]:
    key = bytes([number]) * 32
    return key, SharedPipeline(Pipeline(Rows(), list), TILES, 1, key, common, window_bytes=WINDOW)


@pytest.fixture
def line() -> Iterator[ConsumerConnection]:
    with socket.socket() as sock:
        yield ConsumerConnection("a job", sock)


def begin(pools: SharedPools, line: ConsumerConnection, number: int, lacking: int = TILES) -> bytes:
    key, pipeline = dataset(number)
    pools.open(key, pipeline, b"")
    line.pipelines[key] = pipeline
    lacks = np.arange(TILES) < lacking
    pools.join(line, [number, key, f"loader {number}", lacks_bytes(lacks)])
    return key


def make(pools: SharedPools, line: ConsumerConnection, number: int, key: bytes, count: int) -> None:
    for step in range(count):
        pools.make(Request(line, number, step, key, 0, 1, 0))


def held(pools: SharedPools) -> int:
    totals = pools.totals
    return totals.held_bytes if totals is not None else 0


def test_several_datasets_keep_one_window_together(line: ConsumerConnection) -> None:
    pools = SharedPools(1)
    keys = {number: begin(pools, line, number) for number in range(1, 5)}
    for number, key in keys.items():
        make(pools, line, number, key, 10)
        assert held(pools) <= WINDOW + 1
    assert held(pools) == pytest.approx(WINDOW, rel=0.1)


def test_a_dataset_of_which_nobody_lacks_anything_makes_room(line: ConsumerConnection) -> None:
    pools = SharedPools(1)
    key = begin(pools, line, 1)
    make(pools, line, 1, key, 20)
    pools.rest(line, 1)
    assert held(pools) == WINDOW, "nobody else needs the room"
    other = begin(pools, line, 2)
    make(pools, line, 2, other, 20)
    assert WINDOW - SAMPLE_BYTES <= held(pools) <= WINDOW + SAMPLE_BYTES
    again = begin(pools, line, 1)
    make(pools, line, 1, again, 5)
    assert held(pools) <= WINDOW + 1, "and has its part again in its next epoch"


def test_a_common_order_divides_with_the_others(line: ConsumerConnection) -> None:
    pools = SharedPools(1)
    key = begin(pools, line, 1)
    make(pools, line, 1, key, 20)
    name, pipeline = dataset(9, common=True)
    line.pipelines[name] = pipeline
    for index in range(20):
        pools.make(Request(line, 9, index, name, 3, [index], 0))
    make(pools, line, 1, key, 10)
    assert held(pools) <= WINDOW + 1


def test_datasets_that_change_every_epoch_are_not_refused(line: ConsumerConnection) -> None:
    pools = SharedPools(1)
    for number in range(1, 3 * MAX_SHARED):
        key = begin(pools, line, number)
        make(pools, line, number, key, 2)
        pools.rest(line, number)


def test_only_so_many_are_shared_at_once(line: ConsumerConnection) -> None:
    pools = SharedPools(1)
    for number in range(1, MAX_SHARED + 1):
        begin(pools, line, number)
    with pytest.raises(DataError, match="16 datasets are shared here already"):
        begin(pools, line, MAX_SHARED + 1)


def test_a_dataset_that_comes_again_has_other_random_numbers(line: ConsumerConnection) -> None:
    pools = SharedPools(1)
    orders = []
    for _ in range(2):
        key = begin(pools, line, 1)
        tiles = [pools.make(Request(line, 1, step, key, 0, 1, 0))[1][0] for step in range(TILES)]
        orders.append(tiles)
        pools.rest(line, 1)
        for number in range(2, MAX_SHARED + 2):  # takes its place
            begin(pools, line, number)
            pools.rest(line, number)
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


class Strange(Rows):
    """Its samples cannot be sent, or are none."""

    def __init__(self, sample: object) -> None:
        self.sample = sample

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.sample, Exception):
            raise self.sample
        return self.sample


def proof(pools: SharedPools, rows: Rows) -> bytes:
    key, _ = dataset(1)
    return pools.prove(SharedPipeline(Pipeline(rows, list), TILES, 1, key, window_bytes=WINDOW))


def test_a_proof_is_the_same_where_the_same_is_made() -> None:
    found = proof(SharedPools(1), Rows())
    assert len(found) == 32
    assert proof(SharedPools(2), Rows()) == found, "whatever else a data worker draws"
    others = [np.full(SAMPLE_BYTES, 3, np.int8), np.full((SAMPLE_BYTES, 1), 3, np.uint8), (1, 2)]
    assert len({found, *(proof(SharedPools(1), Strange(one)) for one in others)}) == 4


def test_what_cannot_be_made_or_sent_has_no_proof() -> None:
    for sample in (ValueError("no such picture"), object()):
        assert proof(SharedPools(1), Strange(sample)) == b""
