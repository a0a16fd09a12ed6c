"""`distribute` in programs of one share group: each element is made once for all of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.base.enums import Guarantee
from penstock.data.complaints import Complaints
from penstock.data.consuming.consumer import Consumer
from penstock.data.protocol import InputOptions, ShareOptions
from penstock.data.tensorflow import distribute, shard_sharing
from penstock.data.tensorflow.distributed import DistributedDataset
from penstock.data.tensorflow.shard_sharing import State
from tests.data import planes
from tests.data.planes import end, eventually, spawn

SHARDS, SIZE = 6, 9
SECRET = "PENSTOCK_TEST_SECRET"


def noted(folder: Path) -> Callable[[int], Any]:
    """Shards that write down each element that is made, in a file of the process that makes it."""

    def make(shard: int) -> Any:
        import tensorflow as tf

        def note(number: Any) -> Any:
            with (folder / str(os.getpid())).open("a") as file:
                file.write(f"{int(number)}\n")
            return number

        return tf.data.Dataset.range(SIZE * shard, SIZE * shard + SIZE).map(note)

    return make


def secretive(shard: int) -> Any:
    """Shards that depend on what no digest sees."""
    import tensorflow as tf

    more = int(os.environ.get(SECRET, "0"))
    return tf.data.Dataset.range(SIZE * shard, SIZE * shard + SIZE).map(lambda one: one + more)


def fickle(shard: int) -> Any:
    """Shards that are others each time."""
    import tensorflow as tf

    more = int.from_bytes(os.urandom(4), "little") * 1000
    return tf.data.Dataset.range(SIZE * shard, SIZE * shard + SIZE).map(lambda one: one + more)


def state_of(data: DistributedDataset) -> State:
    assert data._sharing is not None
    return data._sharing.state


def values(elements: Any) -> list[int]:
    return [int(element.numpy()) for element in elements]


@pytest.fixture
def members(tf: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Consumer]]:
    """Two training processes of a group."""
    monkeypatch.setattr(shard_sharing, "_complaints", Complaints())
    with ExitStack() as ending:
        found = [ending.enter_context(planes.consumer()) for _ in range(2)]
        for one in found:
            one._options = InputOptions(share=ShareOptions(group="search", window_bytes=1 << 20))
        yield found


@pytest.fixture
def worker(members: list[Consumer]) -> Iterator[Any]:
    process = spawn(*members)
    try:
        eventually(lambda: all(one.workers for one in members), 40)
        yield process
    finally:
        end(process)


@pytest.mark.slow
def test_what_one_program_has_had_is_not_made_again_for_another(
    members: list[Consumer], worker: Any, tmp_path: Path
) -> None:
    make, alone = noted(tmp_path), values(distribute(secretive, SHARDS, cycle_length=4, seed=2))
    assert sorted(alone) == list(range(SHARDS * SIZE))
    for consumer in members:
        data = distribute(make, SHARDS, cycle_length=4, seed=2, consumer=consumer)
        assert values(data) == alone
        assert consumer.counts.made_here == 0
    made = (tmp_path / str(worker.pid)).read_text().split()
    assert sorted(map(int, made)) == list(range(SHARDS * SIZE)), "each once for both"


@pytest.mark.slow
def test_they_may_be_at_different_elements_in_a_window_of_nothing(
    members: list[Consumer], worker: Any
) -> None:
    share = ShareOptions(group="search", window_bytes=1)
    for one in members:
        one._options = InputOptions(share=share)
    fast, slow = (distribute(secretive, SHARDS, seed=5, consumer=one) for one in members)
    whole = values(distribute(secretive, SHARDS, seed=5))
    iterator = iter(slow)
    begun = [int(next(iterator).numpy()) for _ in range(4)]
    assert values(fast) == whole
    assert begun + values(iterator) == whole


@pytest.mark.slow
def test_who_loses_its_data_worker_has_each_element_once(
    members: list[Consumer], worker: Any
) -> None:
    whole = values(distribute(secretive, SHARDS, seed=7))
    both = [iter(distribute(secretive, SHARDS, seed=7, consumer=one)) for one in members]
    got: list[list[int]] = [[int(next(one).numpy()) for _ in range(11)] for one in both]
    other = spawn(*members)
    try:
        eventually(lambda: all(len(one.workers) == 2 for one in members), 40)
        end(worker)
        for had, rest in zip(got, both, strict=True):
            assert had + values(rest) == whole
    finally:
        end(other)


@pytest.mark.slow
def test_a_program_that_differs_secretly_makes_its_own_and_is_told(
    members: list[Consumer],
    worker: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(SECRET, "1000")
    data = distribute(secretive, SHARDS, seed=2, consumer=members[0])
    for _ in range(2):
        assert sorted(values(data)) == list(range(1000, 1000 + SHARDS * SIZE))
    [said] = [one.getMessage() for one in caplog.records if "search" in one.getMessage()]
    assert said == (
        "a dataset of secretive does not share with group search, and is served by no data "
        "worker: what these make is something else: element[0] is another there"
    )


@pytest.mark.slow
def test_shards_that_are_others_each_time_are_served_as_without_a_group(
    members: list[Consumer], worker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    data = distribute(fickle, SHARDS, seed=2, consumer=members[0])
    found = values(data)
    assert sorted(one % 1000 for one in found) == list(range(SHARDS * SIZE))
    assert members[0].counts.arrived >= SHARDS * SIZE
    assert "another each time it is made" in caplog.text


@pytest.mark.slow
def test_an_epoch_that_is_gone_on_with_is_shared_from_the_next_one_on(
    members: list[Consumer], worker: Any
) -> None:
    first = distribute(secretive, SHARDS, seed=3)
    whole = [values(first), values(first)]
    got = iter(distribute(secretive, SHARDS, seed=3, consumer=members[0]))
    had = [int(next(got).numpy()) for _ in range(7)]
    stopped = distribute(secretive, SHARDS, seed=3)
    begun = iter(stopped)
    for _ in range(7):
        next(begun)
    resumed = distribute(secretive, SHARDS, seed=3, consumer=members[1])
    resumed.load_state_dict(stopped.state_dict())
    assert had + values(resumed) == whole[0]
    known = [state_of(resumed)]
    assert values(resumed) == whole[1]
    known.append(state_of(resumed))
    assert known == [State.UNKNOWN, State.SAME]


def test_who_does_not_share_is_told_why(
    members: list[Consumer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    distribute(secretive, SHARDS, endless=True, consumer=members[0])
    share = ShareOptions(group="search")
    members[0]._options = InputOptions(share=share, guarantee=Guarantee.AT_MOST_ONCE)
    distribute(secretive, SHARDS, consumer=members[0])
    [said] = [one.getMessage() for one in caplog.records]
    assert said.endswith("does not share with group search: its shards have no end")


def test_without_a_group_there_is_nothing_to_say(tf: Any) -> None:
    with planes.consumer() as alone:
        assert distribute(secretive, SHARDS, consumer=alone)._sharing is None
