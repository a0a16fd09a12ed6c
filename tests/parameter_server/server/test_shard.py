"""What a server answers in each stage, and what the trainer's orders make of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.parameters.orders import eventually, random_model
from penstock.data.spare_memory import SpareMemory
from penstock.parameter_server.layout import Layout, ServerAddress, ServerId, assign
from penstock.parameter_server.protocol import ServerOrder, ServerReply, ServerStage, Source
from penstock.parameter_server.server import order_executor, request_handler
from penstock.parameter_server.server.requests import Response
from penstock.parameter_server.server.shard import ServerShard
from penstock.parameter_server.server.storage.snapshots import Snapshots
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
)
from penstock.parameter_server.wire import (
    BEGIN,
    DONE,
    PARTITION,
    PULL,
    PUSH,
    READ,
    SEAL,
    STATE,
    STATED,
    UNAVAILABLE,
    VALUES,
    WRITE,
    Unavailable,
)

ME = ServerId(rank=0, incarnation=0, nonce="me")
SPEC = ModelSpec(
    spaces=(SpaceSpec(dim=3, tables=(TableSpec(name="t", rows=40),)),),
    dense=(DenseSpec(name="w", shape=(10,)),),
    optimizer=OptimizerSpec(kind=OptimizerKind.ADAGRAD, learning_rate=0.5),
    partitions=4,
)
ROWS = np.array([1, 7, 30])
NOTHING = memoryview(b"")


class Server:
    """A shard and its orders, each a revision later than the one before."""

    def __init__(self, limit: int | None = None) -> None:
        self.changes = threading.Event()
        self.shard = ServerShard(ME, "token", self.changes.set, limit)
        self.revision = 0

    def order(self, order: ServerOrder, **rest: Any) -> None:
        self.revision += 1
        self.shard.apply_orders(
            ServerReply(trainer="t", revision=self.revision, order=order, **rest)
        )

    def ask(self, kind: int, header: Any, body: bytes | memoryview = NOTHING) -> Response:
        return self.shard.answer("worker", kind, header, memoryview(body))

    def fill(self, number: int = 1, model: Store | None = None) -> Layout:
        layout = alone(number)
        self.order(ServerOrder.BUILD, next=layout, source=Source.CHIEF, spec=SPEC)
        model = model or random_model(SPEC)
        for partition in range(SPEC.partitions):
            arrays = model.partition(partition)
            header = [number, partition, [array.size for array in arrays]]
            assert self.ask(WRITE, header, joined(arrays)).kind == DONE
        ranges = [list(one) for one in model.applied]
        assert self.ask(SEAL, [number, ranges, model.pushes]).kind == DONE
        return layout

    def serve(self, layout: Layout, **rest: Any) -> None:
        self.order(ServerOrder.SERVE, layout=layout, **rest)

    def push(self, slot: int, number: int = 1) -> Response:
        gradients = np.ones((3, 3), np.float32)
        dense = np.ones(10, np.float32)
        body = ROWS.tobytes() + gradients.tobytes() + dense.tobytes()
        return self.ask(PUSH, [number, slot, [[0, 3]], True], body)

    def partitions(self, snapshot: int | None = None, number: int = 1) -> list[bytes]:
        answers = [self.ask(READ, [number, snapshot, p]) for p in range(SPEC.partitions)]
        assert {answer.kind for answer in answers} == {PARTITION}
        return [joined(answer.body) for answer in answers]


def alone(number: int) -> Layout:
    return assign(number, [ServerAddress(id=ME, address="here:1")], SPEC.partitions)


def joined(arrays: Any) -> bytes:
    return b"".join(array.tobytes() for array in arrays)


def reason(answer: Response) -> str:
    assert answer.kind == UNAVAILABLE
    return str(answer.header[0])


def stage(server: Server) -> ServerStage:
    return server.shard.status().stage


@pytest.fixture
def server() -> Server:
    return Server()


REQUESTS: dict[str, Callable[[Server], Response]] = {
    "begin": lambda server: server.ask(BEGIN, [1, 9, None]),
    "pull": lambda server: server.ask(PULL, [1, [[0, 3]]], ROWS.tobytes()),
    "push": lambda server: server.push(9),
    "read": lambda server: server.ask(READ, [1, None, 0]),
    "state": lambda server: server.ask(STATE, [1, False]),
}
ALLOWED = {
    ServerOrder.SERVE: {"begin": VALUES, "pull": VALUES, "push": DONE, "state": STATED},
    ServerOrder.HALT: {"pull": VALUES, "push": DONE, "state": STATED},
    ServerOrder.FREEZE: {"read": PARTITION, "state": STATED},
}
REFUSED = {
    (ServerOrder.HALT, "begin"): Unavailable.HALTED,
    (ServerOrder.IDLE, "begin"): Unavailable.LAYOUT,
}


@pytest.mark.parametrize("order", [*ALLOWED, ServerOrder.IDLE])
@pytest.mark.parametrize("kind", REQUESTS)
def test_what_is_answered_in_each_stage(server: Server, order: ServerOrder, kind: str) -> None:
    layout = server.fill()
    server.serve(layout)
    server.order(order, layout=layout)
    answer = REQUESTS[kind](server)
    wanted = ALLOWED.get(order, {}).get(kind)
    if wanted is None:
        usual = Unavailable.LAYOUT if order is ServerOrder.IDLE else Unavailable.FROZEN
        assert reason(answer) == REFUSED.get((order, kind), usual)
    else:
        assert answer.kind == wanted


@pytest.mark.parametrize("kind", REQUESTS)
def test_requests_of_another_layout_are_sent_away(server: Server, kind: str) -> None:
    layout = server.fill(2)
    server.serve(layout)
    answer = REQUESTS[kind](server)
    assert reason(answer) == Unavailable.LAYOUT
    assert "holds layout 2, not 1" in answer.header[1]


def test_parameters_are_those_that_the_chief_wrote_and_pushes_change_them(server: Server) -> None:
    model = random_model(SPEC)
    server.serve(server.fill(1, model))
    answer = server.ask(PULL, [1, [[0, 3]]], ROWS.tobytes())
    assert answer.header == [5]
    assert np.array_equal(answer.body[0], model.pull(0, ROWS))
    ones = np.ones((3, 3), np.float32)
    assert model.push(9, [(0, ROWS, ones)], np.ones(10, np.float32))
    assert server.push(9).header == [1, 6]
    assert server.push(9).header == [0, 6]
    assert server.push(3).header == [0, 6]  # the chief said that slots 0 to 3 had been applied
    assert np.array_equal(server.ask(BEGIN, [1, 10, None]).body[0], model.begin())
    status = server.shard.status()
    assert (status.applied.slots, status.applied.pushes) == (6, 6)
    figures = status.figures
    assert (figures.pulls, figures.pushes, figures.duplicates) == (2, 1, 2)
    assert figures.bytes_in == SPEC.bytes + 24 + 3 * (24 + 36 + 40)
    assert figures.bytes_out == 36 + 40
    assert figures.busy_seconds > 0


def test_a_fill_counts_when_it_is_whole(server: Server) -> None:
    layout = alone(1)
    server.order(ServerOrder.BUILD, next=layout, source=Source.CHIEF, spec=SPEC)
    assert reason(server.ask(SEAL, [1, [], 0])) == Unavailable.BAD
    assert server.shard.status().built == 0
    server.serve(layout)
    assert "ordered to serve layout 1; holding nothing" in server.shard.status().trouble
    assert stage(server) is ServerStage.EMPTY
    assert reason(server.ask(WRITE, [1, 0, [0, 0, 0, 0]])) == Unavailable.LAYOUT  # it was abandoned
    layout = server.fill(2)
    assert server.shard.status().built == 2
    assert reason(server.ask(WRITE, [2, 0, [0, 0, 0, 0]])) == Unavailable.BAD
    server.serve(layout)
    assert server.shard.status().trouble == ""
    assert stage(server) is ServerStage.SERVING


def test_a_second_chief_fills_over_what_the_first_began(server: Server) -> None:
    layout = alone(1)
    server.order(ServerOrder.BUILD, next=layout, source=Source.CHIEF, spec=SPEC)
    old, fresh = random_model(SPEC), Store(SPEC, range(SPEC.partitions))
    fresh.initialise()
    for partition in range(2):
        arrays = old.partition(partition)
        server.ask(WRITE, [1, partition, [array.size for array in arrays]], joined(arrays))
    dense = np.arange(10, dtype=np.float32)
    for partition in range(SPEC.partitions):
        start, stop = SPEC.dense_range(partition)
        piece = dense[start:stop]
        header = [1, partition, [0, 0, piece.size, 0]]
        assert server.ask(WRITE, header, piece.tobytes()).kind == DONE
    assert server.ask(SEAL, [1, [], 0]).kind == DONE
    server.serve(layout)
    assert np.array_equal(server.ask(BEGIN, [1, None, None]).body[0], dense)
    rows = np.arange(40)
    pulled = server.ask(PULL, [1, [[0, 40]]], rows.tobytes()).body[0]
    assert np.array_equal(pulled, fresh.pull(0, rows))


def test_a_snapshot_stays_as_it_was_taken(server: Server) -> None:
    layout = server.fill()
    server.serve(layout)
    server.push(9)
    server.order(ServerOrder.FREEZE, layout=layout, snapshot=6)
    eventually(lambda: server.shard.status().snapshot == 6)
    assert server.changes.is_set()
    frozen = server.partitions()
    server.serve(layout, snapshot=6)
    server.push(10)
    assert server.partitions(6) == frozen
    assert server.ask(STATE, [6, True]).header == [[[0, 4], [6, 7], [9, 10]], 6]
    server.serve(layout)
    assert server.shard.status().snapshot is None
    assert reason(server.ask(READ, [1, 6, 0])) == Unavailable.LAYOUT


def test_a_snapshot_that_something_changed_under_is_none(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = server.fill()
    server.serve(layout)
    taken, go_on = threading.Event(), threading.Event()
    really = Store.snapshot

    def slow(store: Store) -> Store:
        go_on.wait(10)
        copy = really(store)
        taken.set()
        return copy

    monkeypatch.setattr(Store, "snapshot", slow)
    server.order(ServerOrder.FREEZE, layout=layout, snapshot=5)
    server.serve(layout, snapshot=5)
    server.push(9)
    go_on.set()
    assert taken.wait(10)
    server.order(ServerOrder.HALT, layout=layout, snapshot=5)
    assert server.shard.status().snapshot is None
    server.order(ServerOrder.FREEZE, layout=layout, snapshot=5)
    eventually(lambda: server.shard.status().snapshot == 5)


def test_a_snapshot_that_was_withdrawn_is_none_though_the_same_is_ordered_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = server.fill()
    server.serve(layout)
    go_on = [threading.Event(), threading.Event()]
    copied: list[Store] = []
    ended = threading.Semaphore(0)
    make = Snapshots._make
    really = Store.snapshot

    def slow(store: Store) -> Store:
        copied.append(store)
        turn = len(copied) - 1
        copy = really(store)
        assert go_on[turn].wait(10)
        return copy

    def told(*known: Any) -> None:
        make(*known)
        ended.release()

    monkeypatch.setattr(Store, "snapshot", slow)
    monkeypatch.setattr(Snapshots, "_make", told)
    server.order(ServerOrder.FREEZE, layout=layout, snapshot=5)
    eventually(lambda: len(copied) == 1)
    server.serve(layout, snapshot=5)
    server.push(9)
    server.order(ServerOrder.FREEZE, layout=layout, snapshot=5)
    eventually(lambda: len(copied) == 2)
    go_on[0].set()
    assert ended.acquire(timeout=10)
    assert server.shard.status().snapshot is None
    go_on[1].set()
    eventually(lambda: server.shard.status().snapshot == 5)
    assert server.partitions(5) == server.partitions()


def test_no_snapshot_is_made_for_which_the_pod_has_no_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Store) -> Store:
        raise AssertionError("it was copied")

    layout = server.fill()
    server.serve(layout)
    with monkeypatch.context() as patch:
        patch.setattr(SpareMemory, "take", lambda *_: False)
        patch.setattr(Store, "snapshot", fails)
        server.order(ServerOrder.FREEZE, layout=layout, snapshot=5)
        eventually(lambda: "no memory for a copy" in server.shard.status().trouble)
        assert server.shard.status().uncopied == 5
        assert server.partitions()
    server.serve(layout)
    assert server.shard.status().uncopied is None
    server.push(9)
    server.order(ServerOrder.FREEZE, layout=layout, snapshot=6)
    eventually(lambda: server.shard.status().snapshot == 6)
    assert server.shard.status().trouble == ""


def test_no_memory_for_a_snapshot_is_said(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Store) -> Store:
        raise MemoryError

    monkeypatch.setattr(Store, "snapshot", fails)
    layout = server.fill()
    server.serve(layout)
    server.order(ServerOrder.FREEZE, layout=layout, snapshot=5)
    eventually(lambda: "no memory for a copy" in server.shard.status().trouble)
    server.order(ServerOrder.FREEZE, layout=layout, snapshot=5)
    assert "no memory for a copy" in server.shard.status().trouble
    server.serve(layout)
    assert server.shard.status().trouble == ""


def test_older_orders_are_passed_over_and_those_of_a_new_trainer_are_not(server: Server) -> None:
    layout = server.fill()
    server.serve(layout)
    late = ServerReply(trainer="t", revision=server.revision - 1, order=ServerOrder.IDLE)
    server.shard.apply_orders(late)
    assert stage(server) is ServerStage.SERVING
    server.shard.apply_orders(
        ServerReply(trainer="new", revision=0, order=ServerOrder.HALT, layout=layout)
    )
    assert stage(server) is ServerStage.HALTED
    assert server.shard.status().seen_revision == 0


def test_a_share_beyond_its_memory_is_refused_with_the_sum() -> None:
    server = Server(limit=order_executor.SPARE_BYTES + SPEC.bytes - 1)
    server.order(ServerOrder.BUILD, next=alone(1), source=Source.CHIEF, spec=SPEC)
    trouble = server.shard.status().trouble
    assert f"takes {SPEC.bytes} bytes" in trouble
    assert "more servers, or more memory" in trouble
    assert reason(server.ask(SEAL, [1, [], 0])) == Unavailable.LAYOUT


def test_what_nobody_can_come_back_to_makes_room_for_what_is_built() -> None:
    server = Server(limit=order_executor.SPARE_BYTES + SPEC.bytes + 1)
    server.serve(server.fill(1))
    server.order(ServerOrder.BUILD, layout=alone(1), next=alone(2), source=Source.CHIEF, spec=SPEC)
    assert f"with {SPEC.bytes} that it holds meanwhile" in server.shard.status().trouble
    assert stage(server) is ServerStage.FROZEN
    server.serve(server.fill(3))
    assert server.shard.status().trouble == ""
    assert stage(server) is ServerStage.SERVING


def test_the_last_push_of_a_halt_is_news(server: Server) -> None:
    layout = server.fill()
    server.serve(layout)
    server.changes.clear()
    server.push(9)
    assert not server.changes.is_set()
    server.order(ServerOrder.HALT, layout=layout)
    server.push(10)
    assert server.changes.is_set()


def test_with_a_bound_a_batch_waits_for_its_turn(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = server.fill()
    server.serve(layout)
    monkeypatch.setattr(request_handler, "BUSY_SECONDS", 0.05)
    assert server.ask(BEGIN, [1, 10, 0]).kind == VALUES
    assert reason(server.ask(BEGIN, [1, 11, 0])) == Unavailable.BUSY
    assert server.ask(BEGIN, [1, None, None]).kind == VALUES
    monkeypatch.setattr(request_handler, "BUSY_SECONDS", 30.0)
    answers: list[Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(server.shard.answer("b", BEGIN, [1, 11, 0], NOTHING))
    )
    waiting.start()
    assert not answers
    server.push(10)
    waiting.join(10)
    assert answers[0].kind == VALUES
    assert answers[0].header == [6]
    server.shard.left("b")
    assert server.ask(BEGIN, [1, 12, 0]).kind == VALUES


def test_a_halt_ends_the_wait_for_a_turn(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = server.fill()
    server.serve(layout)
    monkeypatch.setattr(request_handler, "BUSY_SECONDS", 30.0)
    server.ask(BEGIN, [1, 10, 0])
    answers: list[Response] = []
    waiting = threading.Thread(target=lambda: answers.append(server.ask(BEGIN, [1, 11, 0])))
    waiting.start()
    server.order(ServerOrder.HALT, layout=layout)
    waiting.join(10)
    assert reason(answers[0]) == Unavailable.HALTED


def test_only_the_first_server_of_a_layout_keeps_the_bound(server: Server) -> None:
    other = ServerAddress(id=ServerId(rank=1, incarnation=0, nonce="n"), address="there:1")
    me = ServerAddress(id=ME.model_copy(update={"rank": 2}), address="here:1")
    server.shard = ServerShard(me.id, "token", server.changes.set)
    layout = assign(1, [other, me], SPEC.partitions)
    server.order(ServerOrder.BUILD, next=layout, source=Source.CHIEF, spec=SPEC)
    model = random_model(SPEC)
    for partition in layout.owned_by(me.id):
        arrays = model.partition(partition)
        server.ask(WRITE, [1, partition, [array.size for array in arrays]], joined(arrays))
    server.ask(SEAL, [1, [], 0])
    server.serve(layout)
    assert server.ask(BEGIN, [1, 10, 0]).kind == VALUES
    assert server.ask(BEGIN, [1, 11, 0]).kind == VALUES


FIELD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.floats(), st.text(max_size=3)
)
HEADER = st.one_of(
    FIELD, st.lists(st.one_of(FIELD, st.lists(st.lists(FIELD, max_size=3), max_size=2)), max_size=5)
)


@given(
    st.sampled_from([BEGIN, PULL, PUSH, READ, WRITE, STATE, SEAL, 0, 99]),
    st.one_of(HEADER, HEADER.map(lambda rest: [1, *rest] if isinstance(rest, list) else rest)),
    st.binary(max_size=64),
)
@settings(deadline=None)
def test_whatever_is_asked_there_is_an_answer(kind: int, header: Any, body: bytes) -> None:
    server = Server()
    server.serve(server.fill())
    answer = server.ask(kind, header, body)
    assert answer.kind in (VALUES, DONE, PARTITION, STATED, UNAVAILABLE)
    assert server.ask(BEGIN, [1, None, None]).kind == VALUES


@pytest.mark.parametrize(
    ("kind", "header", "body", "text"),
    [
        (PULL, [1, [[0, 3]]], ROWS[:2].tobytes(), "buffer is smaller"),
        (PULL, [1, [[0, 1]]], ROWS.tobytes(), "a body of 24 bytes where 8 were announced"),
        (PULL, [1, [[0, -1]]], b"", "-1 rows"),
        (PULL, [1, [[0, 1]]], np.array([40]).tobytes(), "which has 40"),
        (PUSH, [1, 9, [[3, 1]], False], bytes(20), "space 3; the model has 1"),
        (PUSH, [1, 9, [], True], bytes(40) + b"1234", "44 bytes where 40"),
        (PUSH, [1, -1, [], False], b"", "slots are numbered from 0"),
        (BEGIN, [1, 9, -1], b"", "staleness -1; neither may be below 0"),
        (READ, [1, None, 4], b"", "partition 4 is not here"),
        (7, [], b"", "no request has kind 7"),
    ],
)
def test_what_cannot_be_meant_is_said(
    server: Server, kind: int, header: Any, body: bytes, text: str
) -> None:
    layout = server.fill()
    server.serve(layout)
    if kind == READ:
        server.order(ServerOrder.FREEZE, layout=layout)
    answer = server.ask(kind, header, body)
    assert reason(answer) == Unavailable.BAD
    assert "ps-0.0" in answer.header[1]
    assert text in answer.header[1]
