"""All servers as one: right answers, whoever owns what, and retries where something moved."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.data.errors import TooLargeError
from penstock.data.ledger.ranges import RangeSet
from penstock.job.protocol import DataSpec
from penstock.parameter_server.arrays import Gradients, Rows
from penstock.parameter_server.connection import Connection
from penstock.parameter_server.layout import Layout
from penstock.parameter_server.protocol import FrozenModel, ServerOrder
from penstock.parameter_server.server.storage.staleness import Gate
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
)
from penstock.parameter_server.worker.checkpoint import CheckpointError, ModelFiles, Saved
from penstock.parameter_server.worker.chief import Filler, Save
from penstock.parameter_server.worker.client import ParameterClient, Pushed, Routes, ServersError
from tests.parameter_server.running_servers import TOKEN, RunningServer, running

DATA = DataSpec(dataset_size=100, global_batch=10, epochs=2, slots_per_step=1)
SPEC = ModelSpec(
    spaces=(
        SpaceSpec(dim=3, tables=(TableSpec(name="a", rows=70), TableSpec(name="b", rows=4))),
        SpaceSpec(dim=1, tables=(TableSpec(name="c", rows=40),)),
    ),
    dense=(DenseSpec(name="w", shape=(5, 3)), DenseSpec(name="v", shape=(40,))),
    optimizer=OptimizerSpec(kind=OptimizerKind.ADAGRAD, learning_rate=0.1),
    seed=3,
    partitions=16,
)
DENSE = np.linspace(-1, 1, SPEC.dense_size, dtype=np.float32)
EVERYTHING = [(0, np.arange(74)), (1, np.arange(40))]


def alone() -> Store:
    """What the servers together should be."""
    store = Store(SPEC, range(SPEC.partitions))
    for partition in range(SPEC.partitions):
        start, stop = SPEC.dense_range(partition)
        store.set_partition(partition, [None] * 4 + [DENSE[start:stop], None])
    return store


def gradients(slot: int) -> tuple[list[Gradients], NDArray[np.float32]]:
    chance = np.random.default_rng(slot)
    sparse = []
    for space, (rows, dim) in enumerate(((74, 3), (40, 1))):
        some = np.sort(chance.permutation(rows)[: 5 + slot % 20])
        sparse.append(Gradients(space, some, chance.standard_normal((len(some), dim), np.float32)))
    return sparse, chance.standard_normal(SPEC.dense_size, np.float32)


def push(one: ParameterClient | Store, slot: int) -> bool:
    """Push the slot's gradients; whether they were applied."""
    sparse, dense = gradients(slot)
    return one.push(slot, sparse, dense) in (True, Pushed.APPLIED)


def assert_same(servers: ParameterClient, store: Store) -> None:
    for values, (space, rows) in zip(servers.pull(EVERYTHING), EVERYTHING, strict=True):
        assert np.array_equal(values, store.pull(space, rows))
    dense = servers.begin(None)
    assert dense is not None
    assert np.array_equal(dense, store.begin())
    for ranges, pushes in servers.applied():
        assert (ranges, pushes) == (list(store.applied), store.pushes)


def filler(files: ModelFiles | None = None) -> Filler:
    return Filler(SPEC, TOKEN, "worker-0.0", DENSE, files)


@pytest.fixture
def there() -> Iterator[RunningServer]:
    with running(SPEC) as found:
        found.start(0, 1, 2)
        found.fill(lambda layout: filler().fill(layout, None), 0, 1, 2)
        yield found


@pytest.fixture
def servers(there: RunningServer) -> Iterator[ParameterClient]:
    found = ParameterClient(SPEC, TOKEN, "worker-0.0", there.present)
    yield found
    found.close()


def test_three_servers_are_as_one_store(servers: ParameterClient) -> None:
    store = alone()
    assert_same(servers, store)
    for slot in range(6):
        assert push(servers, slot)
        push(store, slot)
    assert_same(servers, store)
    rows = np.array([73, 0, 12])
    [values] = servers.pull([(0, rows)])
    assert np.array_equal(values, store.pull(0, rows)), "in the order of the request"
    assert servers.pull([(0, rows[:0])])[0].shape == (0, 3)


def test_a_push_without_gradients_counts_on_every_server(servers: ParameterClient) -> None:
    assert servers.push(4, [], None) is Pushed.APPLIED
    assert servers.push(4, [], None) is Pushed.REPEATED
    assert servers.applied() == [([(4, 5)], 1)] * 3


def test_gradients_of_a_model_that_went_back_are_not_applied_to_what_it_is_now(
    there: RunningServer, servers: ParameterClient
) -> None:
    assert servers.begin(0) is not None
    assert push(servers, 0)
    assert servers.begin(1) is not None
    there.kill(1)
    there.start(1)
    there.fill(lambda layout: filler().fill(layout, None), 0, 1, 2, restores=1)
    sparse, dense = gradients(1)
    assert servers.push(1, sparse, dense) is Pushed.OUTDATED
    assert_same(servers, alone())
    assert servers.begin(1) is not None
    assert push(servers, 1)


@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), (1, 2), (3,)])
def test_it_goes_on_where_the_parameters_were_moved_to(
    there: RunningServer, servers: ParameterClient, ranks: tuple[int, ...]
) -> None:
    store = alone()
    for slot in range(3):
        push(servers, slot)
        push(store, slot)
    there.start(3)
    there.move(*ranks)
    assert_same(servers, store)
    assert push(servers, 3)
    push(store, 3)
    assert_same(servers, store)
    assert servers.count == len(ranks)


def test_while_halted_nothing_begins_but_what_was_begun_ends(
    there: RunningServer, servers: ParameterClient
) -> None:
    assert servers.begin(0) is not None
    there.order(ServerOrder.HALT)
    assert servers.begin(1) is None
    assert servers.begin(None) is not None, "reading is refused to nobody"
    assert len(servers.pull(EVERYTHING)) == 2
    assert push(servers, 0)


def test_what_is_asked_of_frozen_servers_is_answered_when_they_serve_again(
    there: RunningServer, servers: ParameterClient
) -> None:
    there.order(ServerOrder.FREEZE)
    assert servers.begin(0) is None
    done = threading.Event()

    def pushing() -> None:
        assert push(servers, 0)
        done.set()

    thread = threading.Thread(target=pushing)
    thread.start()
    assert not done.wait(0.2)
    there.order(ServerOrder.SERVE)
    assert done.wait(10)
    thread.join()
    assert servers.applied()[2].pushes == 1


def test_a_server_that_died_is_named_and_its_successor_asked(
    there: RunningServer, servers: ParameterClient
) -> None:
    assert servers.begin(0) is not None
    dead = there.servers[1].id
    accused: list[bool] = []

    def present() -> Layout:
        if not accused:
            accused.append(servers.lost == {dead})
            there.start(1)
            there.fill(lambda layout: filler().fill(layout, None), 0, 1, 2)
        return there.present()

    servers._present = present
    there.kill(1)
    assert push(servers, 0)
    assert accused == [True]
    assert not servers.lost
    store = alone()
    push(store, 0)
    assert_same(servers, store)


def test_rows_that_are_pushed_as_they_were_pulled_are_divided_once(
    servers: ParameterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    divide, spaces = Routes._divided, list[int]()

    def divided(routes: Routes, space: int, rows: Rows) -> Any:
        spaces.append(space)
        return divide(routes, space, rows)

    monkeypatch.setattr(Routes, "_divided", divided)
    sparse, dense = gradients(0)
    servers.pull([(part.space, part.rows) for part in sparse])
    assert servers.push(0, sparse, dense) is Pushed.APPLIED
    assert spaces == [0, 1]


def test_a_push_that_reached_one_server_only_is_completed_and_counted_once(
    there: RunningServer, servers: ParameterClient
) -> None:
    sparse, dense = gradients(7)
    part = there.servers[0]._shard.contents.store
    assert part is not None
    partitions, _ = SPEC.places[0].of(sparse[0].rows)
    mine = np.isin(partitions, part.owned)
    part.push(7, [(0, sparse[0].rows[mine], sparse[0].values[mine])], None)
    assert servers.push(7, [sparse[0]], dense) is Pushed.APPLIED
    assert [state.pushes for state in servers.applied()] == [1, 1, 1]


def test_a_request_that_cannot_be_meant_is_an_error_that_says_so(servers: ParameterClient) -> None:
    with pytest.raises(ServersError, match="which has 74"):
        servers.pull([(0, np.array([74]))])
    bad = Gradients(0, np.array([1]), np.full((1, 3), np.nan, np.float32))
    with pytest.raises(ServersError, match="not finite"):
        servers.push(0, [bad], None)
    assert len(servers.pull(EVERYTHING)) == 2, "the connections are as good as before"


@pytest.mark.parametrize("error", [KeyboardInterrupt, TooLargeError])
def test_what_breaks_off_between_two_servers_leaves_no_answer_behind(
    servers: ParameterClient, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    sends = []
    send = Connection.send

    def broken_off(connection: Connection, *request: Any) -> None:
        sends.append(connection)
        if len(sends) == 2:
            raise error
        send(connection, *request)

    servers.begin(None)
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send", broken_off)
        with pytest.raises((KeyboardInterrupt, ServersError)):
            servers.begin(None)
    assert_same(servers, alone())


def test_servers_that_stay_away_are_an_error_in_the_end(there: RunningServer) -> None:
    servers = ParameterClient(SPEC, TOKEN, "worker-0.0", there.present, give_up_seconds=0.3)
    there.kill(2)
    with pytest.raises(ServersError, match=r"no answer from the parameter servers for 0 s: .*"):
        servers.pull(EVERYTHING)
    assert servers.lost == {there.servers[2].id}
    servers.close()


def test_another_token_is_an_error_in_the_end(there: RunningServer) -> None:
    servers = ParameterClient(SPEC, "other", "worker-0.0", there.present, give_up_seconds=0.1)
    with pytest.raises(ServersError, match="token"):
        servers.begin(0)


@pytest.mark.parametrize("staleness", [0, 3])
def test_the_bound_on_staleness_holds_over_several_workers(
    there: RunningServer, staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = there.servers[0]._shard.contents.store
    began: dict[int, int] = {}
    found: list[int] = []
    let_begin, apply = Gate.begin, Store.push

    def begin(gate: Gate, slot: int, bound: int, version: int, *rest: Any) -> bool:
        fits = let_begin(gate, slot, bound, version, *rest)
        if fits:
            began[slot] = version
        return fits

    def applied(store: Store, slot: int, *rest: Any) -> bool:
        if store is first:
            found.append(store.version - began[slot])
        return apply(store, slot, *rest)

    monkeypatch.setattr(Gate, "begin", begin)
    monkeypatch.setattr(Store, "push", applied)

    def work(slots: range) -> None:
        servers = ParameterClient(SPEC, TOKEN, f"worker-{slots.start}", there.present)
        for slot in slots:
            assert servers.begin(slot, staleness) is not None
            push(servers, slot)
        servers.close()

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, range(n * 10, n * 10 + 10)) for n in range(3)]:
            done.result(30)
    assert len(found) == 30
    assert max(found) <= staleness


def test_a_model_is_saved_while_it_is_trained_on_and_filled_in_again(
    there: RunningServer, servers: ParameterClient, tmp_path: Path
) -> None:
    files = ModelFiles(tmp_path, SPEC, DATA)
    for slot in range(5):
        push(servers, slot)
    saved = alone()
    for slot in range(5):
        push(saved, slot)
    there.snapshot(5)
    save = Save(SPEC, TOKEN, "worker-0.0", files, there.present(), 5)
    push(servers, 5)
    save.wait(10)
    assert (save.ended, save.error, save.slots) == (True, None, 5)
    assert servers.applied()[0].pushes == 6

    there.start(3)
    there.kill(0)
    there.fill(lambda layout: filler(files).fill(layout, 5), 1, 3)
    assert_same(servers, saved)
    assert push(servers, 5)
    push(saved, 5)
    assert_same(servers, saved)


def test_a_save_whose_servers_go_is_an_error_and_leaves_no_file(
    there: RunningServer, servers: ParameterClient, tmp_path: Path
) -> None:
    files = ModelFiles(tmp_path, SPEC, DATA)
    save = Save(SPEC, TOKEN, "worker-0.0", files, there.present(), 77)
    save.wait(10)
    assert "no snapshot 77" in str(save.error)
    there.kill(1)
    save = Save(SPEC, TOKEN, "worker-0.0", files, there.present(), 77)
    save.wait(10)
    assert save.ended
    assert save.error is not None
    assert not list(tmp_path.iterdir())


def frozen(there: RunningServer) -> FrozenModel:
    return FrozenModel(layout=there.present(), training_waits=True)


def test_a_model_without_copies_is_read_while_it_is_frozen(
    there: RunningServer, servers: ParameterClient, tmp_path: Path
) -> None:
    files = ModelFiles(tmp_path, SPEC, DATA)
    for slot in range(5):
        push(servers, slot)
    there.order(ServerOrder.FREEZE)
    save = Save(SPEC, TOKEN, "worker-0.0", files, there.present(), 5, frozen(there))
    save.wait(10)
    assert (save.ended, save.error, save.slots, save.read) == (True, None, 5, True)
    assert not save.holds_up
    there.order(ServerOrder.SERVE)
    push(servers, 5)
    there.start(3)
    there.fill(lambda layout: filler(files).fill(layout, 5), 1, 3)
    saved = alone()
    for slot in range(5):
        push(saved, slot)
    assert_same(servers, saved)


@pytest.mark.parametrize("when", [0, 1, 9, SPEC.partitions])
def test_a_model_that_goes_on_while_it_is_read_leaves_no_file(
    there: RunningServer,
    servers: ParameterClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: int,
) -> None:
    """Whether one batch was trained meanwhile, and even where all stands still again since."""
    files = ModelFiles(tmp_path, SPEC, DATA)
    for slot in range(5):
        push(servers, slot)
    write = ModelFiles.write

    def goes_on(files: ModelFiles, applied: RangeSet, pushes: int, parts: Any) -> Saved:
        def watched() -> Iterator[Any]:
            for count in range(SPEC.partitions + 1):
                if count == when:
                    there.order(ServerOrder.SERVE)
                    push(servers, 5)
                    there.order(ServerOrder.FREEZE)
                part = next(parts, None)
                if part is None:
                    return
                yield part

        return write(files, applied, pushes, watched())

    monkeypatch.setattr(ModelFiles, "write", goes_on)
    there.order(ServerOrder.FREEZE)
    save = Save(SPEC, TOKEN, "worker-0.0", files, there.present(), 5, frozen(there))
    save.wait(10)
    assert save.ended
    assert re.search("6 batches instead of 5|read while nothing changes them", save.failure)
    assert not list(tmp_path.glob("slots-*"))


def test_a_save_of_frozen_servers_that_was_left_writes_no_file(
    there: RunningServer, servers: ParameterClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ModelFiles(tmp_path, SPEC, DATA)
    push(servers, 0)
    hangs, mended, write = threading.Event(), threading.Event(), ModelFiles.write

    def hanging(files: ModelFiles, applied: RangeSet, pushes: int, parts: Any) -> Saved:
        hangs.set()
        assert mended.wait(30)
        return write(files, applied, pushes, parts)

    monkeypatch.setattr(ModelFiles, "write", hanging)
    there.order(ServerOrder.FREEZE)
    save = Save(SPEC, TOKEN, "worker-0.0", files, there.present(), 1, frozen(there))
    assert hangs.wait(10)
    assert not save.is_stalled(60)
    assert save.is_stalled(0)
    save.abandon()
    assert "the disk takes too little" in save.failure
    mended.set()
    save.wait(10)
    assert save.ended
    assert save.slots is None
    assert not list(tmp_path.glob("slots-*"))


def test_a_checkpoint_that_is_gone_is_said(there: RunningServer, tmp_path: Path) -> None:
    files = ModelFiles(tmp_path, SPEC, DATA)
    with pytest.raises(CheckpointError, match="no checkpoint of 12 slots"):
        filler(files).fill(there.present(), 12)
