"""Real servers under a trainer that a test speaks for: they move, die, drain and lose nothing."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import psutil
import pytest

from benchmarks.parameters.orders import (
    TOKEN,
    Trainer,
    eventually,
    process,
    random_model,
    write,
)
from penstock.base import ports
from penstock.crds import environment as names
from penstock.data.errors import FrameError, HandshakeError
from penstock.data.transport import frame
from penstock.job.settings import SettingsError
from penstock.parameter_server.arrays import shapes_of
from penstock.parameter_server.connection import Connection, UnavailableError
from penstock.parameter_server.layout import Layout, ServerAddress, assign
from penstock.parameter_server.protocol import ServerOrder, ServerStage, Source
from penstock.parameter_server.server.process import ParameterServer
from penstock.parameter_server.server.settings import ServerSettings, server_settings
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.spec import (
    DenseSpec,
    ModelSpec,
    OptimizerKind,
    OptimizerSpec,
    SpaceSpec,
    TableSpec,
)
from penstock.parameter_server.wire import BEGIN, PULL, PUSH, READ, STATE, Unavailable

SPEC = ModelSpec(
    spaces=(SpaceSpec(dim=8, tables=(TableSpec(name="t", rows=900),)),),
    dense=(DenseSpec(name="w", shape=(50, 3)),),
    optimizer=OptimizerSpec(kind=OptimizerKind.ADAGRAD, learning_rate=0.5),
    partitions=12,
)


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    with Trainer() as there:
        yield there


class Servers:
    """Processes by rank; the newest life of each."""

    def __init__(self, trainer: Trainer, stack: contextlib.ExitStack) -> None:
        self._trainer = trainer
        self._stack = stack
        self.children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *ranks: int, options: tuple[str, ...] = ()) -> list[ServerAddress]:
        """Start servers, and wait until they have reported."""
        before = {
            rank: report.server.nonce
            for rank in ranks
            if (report := self._trainer.reports.get(f"ps-{rank}.0")) is not None
        }
        for rank in ranks:
            self.children[rank] = self._stack.enter_context(
                process(self._trainer, rank, 0, *options)
            )
        return [self._trainer.await_server(f"ps-{r}.0", but=before.get(r, "")) for r in ranks]

    def kill(self, rank: int) -> None:
        self.children[rank].kill()
        self.children[rank].wait(10)


@pytest.fixture
def servers(trainer: Trainer) -> Iterator[Servers]:
    with contextlib.ExitStack() as stack:
        yield Servers(trainer, stack)


def push(layout: Layout, model: Store, slot: int) -> list[int]:
    """One batch's push to all servers, and to the model that says what should come of it."""
    generator = np.random.default_rng(slot)
    rows = np.unique(generator.integers(0, 900, 60))
    gradients = generator.standard_normal((len(rows), 8), np.float32)
    dense = generator.standard_normal(150, np.float32)
    model.push(slot, [(0, rows, gradients)], dense)
    partition, _ = SPEC.places[0].of(rows)
    applied = []
    for server in layout.servers:
        owned = layout.owned_by(server.id)
        mine = np.isin(partition, owned)
        pieces = [dense[slice(*SPEC.dense_range(p))] for p in owned]
        connection = Connection.connect(server.address, TOKEN, "worker")
        header = [layout.number, slot, [[0, int(mine.sum())]], True]
        body = [rows[mine], gradients[mine], *pieces]
        applied.append(connection.ask(PUSH, header, body).header[0])
        connection.close()
    return applied


def content(layout: Layout) -> Store:
    """What frozen servers hold, all together."""
    store = Store(SPEC, range(SPEC.partitions))
    states = []
    for server in layout.servers:
        connection = Connection.connect(server.address, TOKEN, "reader")
        for partition in layout.owned_by(server.id):
            body = connection.ask(READ, [layout.number, None, partition]).body
            arrays, at = [], 0
            for shape in shapes_of(SPEC, partition):
                size = int(np.prod(shape))
                arrays.append(np.frombuffer(body, np.float32, size, at))
                at += 4 * size
            store.set_partition(partition, arrays)
        states.append(connection.ask(STATE, [layout.number, False]).header)
        connection.close()
    assert all(state == states[0] for state in states)
    store.pushes = states[0][1]
    for start, stop in states[0][0]:
        store.applied.add(start, stop)
    return store


def assert_same(one: Store, other: Store) -> None:
    for partition in range(SPEC.partitions):
        pairs = zip(one.partition(partition), other.partition(partition), strict=True)
        assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)
    assert one.applied == other.applied
    assert one.pushes == other.pushes


def test_a_model_moves_from_two_servers_to_four_and_to_three(
    trainer: Trainer, servers: Servers
) -> None:
    model = random_model(SPEC)
    two = servers.start(0, 1)
    layout = trainer.fill(1, two, model)
    assert push(layout, model, 10) == [1, 1]
    four = [*two, *servers.start(2, 3)]
    layout = trainer.move(2, four, layout, SPEC)
    assert push(layout, model, 10) == [0] * 4
    assert push(layout, model, 11) == [1] * 4
    layout = trainer.move(3, four[1:], layout, SPEC)
    trainer.await_reports(four[:1], lambda report: report.stage is ServerStage.EMPTY)
    assert push(layout, model, 11) == [0] * 3
    assert push(layout, model, 12) == [1] * 3
    reports = trainer.freeze(layout)
    assert len({report.applied.digest for report in reports}) == 1
    assert {report.applied.pushes for report in reports} == {8}
    assert_same(content(layout), model)
    trainer.order(four[1:], ServerOrder.IDLE, finished=True)
    trainer.order(four[:1], ServerOrder.REFUSED, message="the job is done")
    assert [child.wait(10) for child in servers.children.values()] == [1, 0, 0, 0]


def test_a_newcomer_killed_while_it_builds_leaves_what_is_served_intact(
    trainer: Trainer, servers: Servers
) -> None:
    model = random_model(SPEC)
    layout = trainer.fill(1, servers.start(0, 1), model)
    newcomer = servers.start(2)
    wider = assign(2, [*layout.servers, *newcomer], SPEC.partitions, layout)
    trainer.freeze(layout)
    servers.children[1].send_signal(signal.SIGSTOP)  # so that the newcomer waits for it
    trainer.build(wider, layout, SPEC)
    trainer.await_reports(newcomer, lambda report: report.spec is not None)
    servers.kill(2)
    servers.children[1].send_signal(signal.SIGCONT)
    trainer.serve(layout)
    push(layout, model, 20)
    again = servers.start(2)
    assert again[0].id != newcomer[0].id
    layout = trainer.move(3, [*layout.servers, *again], layout, SPEC)
    trainer.freeze(layout)
    assert_same(content(layout), model)


def test_an_owner_killed_while_it_is_read_is_trouble_and_the_chief_fills_anew(
    trainer: Trainer, servers: Servers
) -> None:
    model = random_model(SPEC)
    layout = trainer.fill(1, servers.start(0, 1), model)
    newcomer = servers.start(2)
    wider = assign(2, [*layout.servers, *newcomer], SPEC.partitions, layout)
    trainer.freeze(layout)
    servers.children[1].send_signal(signal.SIGSTOP)
    trainer.build(wider, layout, SPEC)
    servers.kill(1)
    [report] = trainer.await_reports(newcomer, lambda report: bool(report.trouble))
    assert "cannot take partitions from ps-1.0" in report.trouble
    assert report.built == 0
    layout = trainer.fill(3, [layout.servers[0], *newcomer, *servers.start(1)], model)
    push(layout, model, 20)
    trainer.freeze(layout)
    assert_same(content(layout), model)


def test_a_chief_that_is_gone_in_the_middle_is_followed_by_another(
    trainer: Trainer, servers: Servers
) -> None:
    first, second = random_model(SPEC, 1), random_model(SPEC, 2)
    addresses = servers.start(0)
    layout = assign(1, addresses, SPEC.partitions)
    trainer.order(addresses, ServerOrder.BUILD, next=layout, source=Source.CHIEF, spec=SPEC)
    trainer.await_reports(addresses, lambda report: report.spec is not None)
    write(addresses[0], layout, first, seal=False)
    write(addresses[0], layout, second)
    trainer.await_reports(addresses, lambda report: report.built == 1)
    trainer.freeze(layout)
    assert_same(content(layout), second)


def test_whoever_asks_a_server_that_is_killed_gets_an_error(
    trainer: Trainer, servers: Servers
) -> None:
    layout = trainer.fill(1, servers.start(0), random_model(SPEC))
    address = layout.servers[0].address
    with (
        closing(Connection.connect(address, TOKEN, "worker")) as first,
        closing(Connection.connect(address, TOKEN, "worker")) as second,
    ):
        server = psutil.Process(servers.children[0].pid)
        server.suspend()
        eventually(lambda: server.status() == psutil.STATUS_STOPPED)
        for connection in (first, second):
            connection.send(BEGIN, [1, 7, None])
        servers.kill(0)
        for connection in (first, second):
            with pytest.raises(FrameError, match="the parameter server at"):
                connection.receive()
        # Refused, unless another process has the port by now: then it is not the one meant.
        with pytest.raises(FrameError, match="the parameter server at"):
            Connection.connect(address, TOKEN, "worker", timeout=5)
        with pytest.raises(FrameError, match="the parameter server at"):
            first.ask(BEGIN, [1, 7, None])


def test_a_worker_killed_in_the_middle_of_a_push_changes_nothing(
    trainer: Trainer, servers: Servers
) -> None:
    model = random_model(SPEC)
    layout = trainer.fill(1, servers.start(0), model)
    connection = Connection.connect(layout.servers[0].address, TOKEN, "worker")
    ours, theirs = socket.socketpair()
    frame.send(theirs, PUSH, [1, 30, [], True], [np.ones(150, np.float32)])
    message = ours.recv(1 << 16)
    ours.close()
    theirs.close()
    connection._sock.sendall(message[: len(message) // 2])
    connection.close()
    assert push(layout, model, 31) == [1]
    trainer.freeze(layout)
    assert_same(content(layout), model)


def test_a_snapshot_is_read_while_the_training_goes_on(trainer: Trainer, servers: Servers) -> None:
    model = random_model(SPEC)
    layout = trainer.fill(1, servers.start(0, 1), model)
    trainer.order(list(layout.servers), ServerOrder.FREEZE, layout=layout, snapshot=5)
    trainer.await_reports(list(layout.servers), lambda report: report.snapshot == 5)
    before = model.snapshot()
    trainer.serve(layout, snapshot=5)
    push(layout, model, 20)
    for server in layout.servers:
        connection = Connection.connect(server.address, TOKEN, "chief")
        for partition in layout.owned_by(server.id):
            body = connection.ask(READ, [1, 5, partition]).body
            wanted = b"".join(array.tobytes() for array in before.partition(partition))
            assert bytes(body) == wanted
        connection.close()
    trainer.serve(layout)
    trainer.await_reports(list(layout.servers), lambda report: report.snapshot is None)


def test_a_server_goes_on_without_its_trainer_and_tells_the_next_one_everything(
    servers: Servers, trainer: Trainer
) -> None:
    model = random_model(SPEC)
    layout = trainer.fill(1, servers.start(0), model)
    trainer.silent.set()
    push(layout, model, 20)
    connection = Connection.connect(layout.servers[0].address, TOKEN, "worker")
    rows = np.arange(10)
    body = connection.ask(PULL, [1, [[0, 10]]], [rows]).body
    assert np.array_equal(np.frombuffer(body, np.float32).reshape(10, 8), model.pull(0, rows))
    connection.close()
    trainer.reports.clear()
    trainer.silent.clear()
    [report] = trainer.await_reports(list(layout.servers), lambda _: True)
    assert report.stage is ServerStage.SERVING
    assert report.layout == layout
    assert report.spec == SPEC
    assert report.applied.pushes == 6
    assert report.usage is not None
    assert report.usage.memory_bytes > 1 << 20


def test_a_server_that_is_asked_to_go_stays_until_others_have_what_it_held(
    trainer: Trainer, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")  # as a pod of two cores has it: NumPy's threads
    model = random_model(SPEC)
    both = servers.start(0, 1)
    layout = trainer.fill(1, both, model)
    servers.children[1].terminate()
    trainer.await_reports(both[1:], lambda report: report.draining)
    assert push(layout, model, 20) == [1, 1]
    layout = trainer.move(2, both[:1], layout, SPEC)
    assert servers.children[1].wait(10) == 0
    trainer.freeze(layout)
    assert_same(content(layout), model)


def test_a_server_from_which_nobody_takes_over_ends_in_time(
    trainer: Trainer, servers: Servers
) -> None:
    trainer.fill(1, servers.start(0, options=("--grace-seconds", "0.5")), random_model(SPEC))
    servers.children[0].terminate()
    assert servers.children[0].wait(10) == 143


def test_a_share_that_does_not_fit_is_said(trainer: Trainer, servers: Servers) -> None:
    addresses = servers.start(0, options=("--memory", "64Mi"))
    layout = assign(1, addresses, SPEC.partitions)
    trainer.order(addresses, ServerOrder.BUILD, next=layout, source=Source.CHIEF, spec=SPEC)
    [report] = trainer.await_reports(addresses, lambda report: bool(report.trouble))
    assert f"takes {SPEC.bytes} bytes" in report.trouble
    assert report.memory_limit_bytes == 64 << 20


# ---------------------------------------------------------------------- in this process


@pytest.fixture
def here(trainer: Trainer) -> Iterator[ParameterServer]:
    server = ParameterServer(ServerSettings(trainer.address, TOKEN, ready_host="127.0.0.73"))
    server.start()
    yield server
    server.close()


def can_connect() -> bool:
    try:
        socket.create_connection(("127.0.0.73", ports.PARAMETER_SERVER), 1).close()
    except OSError:
        return False
    return True


def test_it_is_ready_while_it_holds_a_share(trainer: Trainer, here: ParameterServer) -> None:
    address = trainer.await_server("ps-0.0")
    assert not can_connect()
    layout = trainer.fill(1, [address], random_model(SPEC))
    eventually(can_connect)
    trainer.freeze(layout)
    assert can_connect()
    trainer.order([address], ServerOrder.IDLE)
    eventually(lambda: not can_connect())


def test_a_server_that_holds_nothing_goes_at_once_where_no_trainer_answers() -> None:
    server = ParameterServer(ServerSettings("127.0.0.1:9", TOKEN))
    server.start()
    server.drain()
    assert server.wait(10) == 0
    server.close()


def test_strangers_are_told_to_go_and_hold_up_nobody(
    trainer: Trainer, here: ParameterServer
) -> None:
    address = trainer.await_server("ps-0.0")
    with pytest.raises(HandshakeError, match="token"):
        Connection.connect(address.address, "another token", "stranger")
    host, _, port = address.address.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(100) == b""
    silent = socket.create_connection((host, int(port)), 5)
    connection = Connection.connect(address.address, TOKEN, "worker")
    with pytest.raises(UnavailableError, match="holds no parameters") as away:
        connection.ask(BEGIN, [1, 0, None])
    assert away.value.reason is Unavailable.LAYOUT
    connection.send(99, {"not": "a list"}, [bytes(1000)])
    with pytest.raises(UnavailableError, match="no request has kind 99"):
        connection.receive()
    connection.close()
    silent.close()


def test_what_a_server_is_told_is_checked() -> None:
    pod = {
        names.TRAINER_ADDRESS: "trainer-0.job:8476",
        names.POD_IP: "10.0.0.7",
        names.POD_NAME: "job-ps-2-1",
        names.RANK: "2",
        names.INCARNATION: "1",
        names.JOB_TOKEN: "t",
    }
    settings = server_settings(memory="2Gi", environ=pod)
    assert (settings.host, settings.ready_host) == ("10.0.0.7", "10.0.0.7")
    assert (settings.rank, settings.incarnation) == (2, 1)
    assert settings.memory_limit_bytes == 2 << 30
    outside = server_settings("127.0.0.1:1", environ={})
    assert (outside.host, outside.ready_host) == ("127.0.0.1", None)
    for options, text in [
        ({"environ": {}}, "--trainer: none given"),
        ({"trainer": "nowhere", "environ": {}}, "--trainer: 'nowhere'"),
        ({"memory": "much", "environ": pod}, "--memory: 'much'"),
        ({"memory": "0", "environ": pod}, "--memory: 0"),
        ({"grace_seconds": -1.0, "environ": pod}, "--grace-seconds: -1.0"),
    ]:
        with pytest.raises(SettingsError, match=text):
            server_settings(**options)


def test_an_address_that_is_not_here_is_named() -> None:
    command = ["-m", "penstock.cli", "ps", "--trainer", "127.0.0.1:1", "--host", "192.0.2.1"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "192.0.2.1" in done.stderr


def test_a_server_is_reached_over_ipv6(trainer: Trainer) -> None:
    with closing(ParameterServer(ServerSettings(trainer.address, TOKEN, host="::1"))) as server:
        server.start()
        assert server.address.startswith("[::1]:")
        Connection.connect(server.address, TOKEN, "a caller").close()
