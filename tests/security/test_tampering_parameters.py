"""Whoever sits between workers and parameter servers changes neither a model nor what is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from benchmarks.parameters.orders import TOKEN, Trainer, process, random_model
from penstock.crds import environment as names
from penstock.data.errors import FrameError
from penstock.parameter_server.connection import Connection
from penstock.parameter_server.layout import Layout
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
)
from penstock.parameter_server.wire import DONE, PULL, PUSH, STATE, VALUES
from tests.security.relay import TAMPERING, Once, Passing, Swap, relaying

SPEC = ModelSpec(
    spaces=(SpaceSpec(dim=8, tables=(TableSpec(name="t", rows=900),)),),
    dense=(DenseSpec(name="w", shape=(50, 3)),),
    optimizer=OptimizerSpec(kind=OptimizerKind.ADAGRAD, learning_rate=0.5),
    partitions=4,
)
ROWS = np.arange(60)
STALL_SECONDS = 3.0


@pytest.fixture(scope="module")
def layout() -> Iterator[tuple[Layout, Store]]:
    """One server's process with a model, and what it holds."""
    with Trainer() as trainer, process(trainer, 0):
        model = random_model(SPEC)
        yield trainer.fill(1, [trainer.await_server("ps-0.0")], model), model


def pulled(connection: Connection) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    body = connection.ask(PULL, [1, [[0, len(ROWS)]]], [ROWS]).body
    return np.frombuffer(body, np.float32).reshape(len(ROWS), 8)


def connected(address: str) -> closing[Connection]:
    return closing(Connection.connect(address, TOKEN, "worker", STALL_SECONDS))


def state(address: str) -> object:
    """How many updates the server has made, and of which batches."""
    with connected(address) as connection:
        return connection.ask(STATE, [1, False]).header


def push(connection: Connection, slot: int) -> None:
    gradients = np.ones((len(ROWS), 8), np.float32)
    dense = np.ones(150, np.float32)
    connection.ask(PUSH, [1, slot, [[0, len(ROWS)]], True], [ROWS, gradients, dense])


@pytest.mark.parametrize("name", TAMPERING)
def test_parameters_that_were_tampered_with_are_not_read(
    layout: tuple[Layout, Store], name: str
) -> None:
    address = layout[0].servers[0].address
    with connected(address) as directly:
        wanted = pulled(directly)
    change = Once(VALUES, TAMPERING[name])
    with relaying(address, change) as relay, connected(relay.address) as connection:
        if name in ("repeated", "a byte more"):  # which is found with the next
            assert np.array_equal(pulled(connection), wanted)
        with pytest.raises(FrameError, match="the parameter server at"):
            pulled(connection)
        assert change.done.is_set()


@pytest.mark.parametrize("name", sorted(TAMPERING.keys() - {"repeated", "a byte more"}))
def test_a_push_that_was_tampered_with_changes_nothing(
    layout: tuple[Layout, Store], name: str
) -> None:
    address = layout[0].servers[0].address
    before = state(address)
    with connected(address) as directly:
        wanted = pulled(directly)
    change = Once(PUSH, TAMPERING[name])
    with relaying(address, change) as relay, connected(relay.address) as connection:
        with pytest.raises(FrameError, match="the parameter server at"):
            push(connection, 1000)
        assert change.done.is_set()
    assert state(address) == before
    with connected(address) as directly:
        assert np.array_equal(pulled(directly), wanted)


def test_a_push_that_is_repeated_ends_the_connection(layout: tuple[Layout, Store]) -> None:
    address = layout[0].servers[0].address
    change = Once(PUSH, TAMPERING["repeated"])
    with relaying(address, change) as relay, connected(relay.address) as connection:
        push(connection, 2000)
        with pytest.raises(FrameError, match="the parameter server at"):
            pulled(connection)


def test_answers_that_change_places_are_not_read(layout: tuple[Layout, Store]) -> None:
    address = layout[0].servers[0].address
    swap = Swap(VALUES)
    with relaying(address, swap) as relay, connected(relay.address) as connection:
        for first in (0, 30):
            rows = ROWS[first : first + 30]
            connection.send(PULL, [1, [[0, len(rows)]]], [rows])
        with pytest.raises(FrameError, match="not what the other end sent"):
            connection.receive()


def test_an_answer_of_another_connection_is_not_taken(layout: tuple[Layout, Store]) -> None:
    """Of the same server to the same caller, recorded a moment before."""
    address = layout[0].servers[0].address
    kept: list[bytes] = []

    def record(one: Passing) -> bytes:
        kept.append(bytes(one))
        return kept[-1]

    with relaying(address, Once(DONE, record)) as relay, connected(relay.address) as connection:
        push(connection, 3000)
    replay = Once(DONE, lambda _: kept[0])
    with (
        relaying(address, replay) as relay,
        connected(relay.address) as connection,
        pytest.raises(FrameError, match="not what the other end sent"),
    ):
        push(connection, 3001)


def test_parameters_are_hidden_on_demand(
    layout: tuple[Layout, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = layout[0].servers[0].address
    for hide in ("", "1"):  # of one end: the other does as it is asked
        monkeypatch.setenv(names.ENCRYPT_FRAMES, hide)
        with relaying(address) as relay, connected(relay.address) as connection:
            values = pulled(connection).tobytes()
        assert (values in relay.seen) == (not hide)
        assert TOKEN.encode() not in relay.seen
