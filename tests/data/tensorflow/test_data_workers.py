"""`distribute` with data workers: they make all elements, and each comes once though they die."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from penstock.data.consuming.consumer import Consumer
from penstock.data.tensorflow import distribute
from tests.data import planes
from tests.data.planes import end, eventually, spawn

SHARDS, SIZE = 12, 9


def numbers(shard: int) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.range(SIZE * shard, SIZE * shard + SIZE).shuffle(SIZE)


def slow(shard: int) -> Any:
    def wait(number: Any) -> Any:
        time.sleep(0.02)  # what it takes to make an element
        return number

    return numbers(shard).map(wait)


def values(elements: Any) -> list[int]:
    return [int(element.numpy()) for element in elements]


@pytest.fixture
def consumer(tf: Any) -> Iterator[Consumer]:
    with planes.consumer() as made:
        yield made


@pytest.fixture
def workers(consumer: Consumer) -> Iterator[list[Any]]:
    """Two data workers, one of them over TCP."""
    processes = [spawn(consumer), spawn(consumer, tcp=True)]
    try:
        eventually(lambda: len(consumer.workers) == 2, 40)
        yield processes
    finally:
        for process in processes:
            end(process)


@pytest.mark.slow
def test_data_workers_make_what_the_program_would(consumer: Consumer, workers: list[Any]) -> None:
    data = distribute(numbers, SHARDS, cycle_length=4, seed=2, consumer=consumer)
    epochs = [values(data) for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(SHARDS * SIZE))
    assert consumer.counts.arrived == 2 * SHARDS * SIZE
    assert consumer.counts.made_here == 0
    alone = distribute(numbers, SHARDS, cycle_length=4, seed=2)
    assert [values(alone) for _ in range(2)] == epochs


@pytest.mark.slow
def test_a_killed_data_worker_s_shards_go_on_elsewhere(
    consumer: Consumer, workers: list[Any]
) -> None:
    data = distribute(slow, SHARDS, cycle_length=6, seed=2, consumer=consumer)
    alone = values(distribute(numbers, SHARDS, cycle_length=6, seed=2))
    got = []
    for number, element in enumerate(data):
        got.append(int(element.numpy()))
        if number == SHARDS:  # all shards of the round have been begun
            end(workers[0])
    assert got == alone
    assert data.lost == 0
    assert consumer.workers == [one for one in consumer.workers if one]
    assert len(consumer.workers) == 1


@pytest.mark.slow
def test_the_program_goes_on_alone_when_all_data_workers_are_gone(
    consumer: Consumer, workers: list[Any]
) -> None:
    data = distribute(slow, SHARDS, cycle_length=6, seed=2, consumer=consumer)
    got = []
    for number, element in enumerate(data):
        got.append(int(element.numpy()))
        if number == SHARDS:
            for process in workers:
                end(process)
    assert got == values(distribute(numbers, SHARDS, cycle_length=6, seed=2))
    assert consumer.counts.made_here > 0


@pytest.mark.slow
def test_a_state_is_gone_on_with_by_data_workers(consumer: Consumer, workers: list[Any]) -> None:
    whole = values(distribute(numbers, SHARDS, cycle_length=4, seed=7))
    first = distribute(numbers, SHARDS, cycle_length=4, seed=7, consumer=consumer)
    got = values(islice(first, 50))
    resumed = distribute(numbers, SHARDS, cycle_length=4, seed=7, consumer=consumer)
    resumed.load_state_dict(first.state_dict())
    assert got + values(resumed) == whole


def bound(shard: int) -> Any:
    import os

    import tensorflow as tf

    limits: Any = tf
    seen = Path(os.environ["PENSTOCK_TEST_SEEN"])
    seen.with_name(f"{os.getpid()}").write_text(repr(limits.threads))
    return numbers(shard)


@pytest.mark.slow
def test_tensorflow_in_data_workers_is_told_of_the_pod_s_cores(
    consumer: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_SEEN", str(tmp_path / "seen"))
    process = spawn(consumer)
    try:
        eventually(lambda: consumer.workers, 40)
        data = distribute(bound, 2, consumer=consumer)
        assert len(values(data)) == 2 * SIZE
        told = (tmp_path / str(process.pid)).read_text()
        assert "'inter_op'" in told
        assert "'GPU': 0" in told
    finally:
        end(process)
