"""Strangers cost nothing: every listener is in a table, and attacked as the table says.

The figures are those of processes with 256 descriptors, so that a few hundred connections are
enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.enums import ShareOrder
from penstock.base.listener import split_address
from penstock.crds import environment as names
from penstock.data import share_keeper, share_membership
from penstock.data.cache.client import CacheClient
from penstock.data.protocol import InputOptions
from penstock.data.share_keeper import options_of_group
from penstock.data.transport import handshake, newcomers
from penstock.trainer.group import step_barrier
from penstock_cluster.kubelet.network.relay import PLACE, Relay
from tests.data.cache.daemons import read
from tests.house.listeners import made_in_rooms
from tests.patience import patient
from tests.security.attack import churn, connected, flood, silence
from tests.security.listeners import LISTENERS, NO_LISTENERS, markdown_table
from tests.security.program import TOKEN
from tests.security.victim import (
    DESCRIPTORS,
    Victim,
    command,
    command_with_tls,
    eventually,
    program,
    slim_command,
)

DOCS = Path(__file__).parents[2] / "docs/operations/security.md"
MIB = 1 << 20
MOST_MEMORY = 50 * MIB
MOST_MEMORY_IN_TLS = 150 * MIB
"""Of all connections together, while they may yet shake hands."""
MOST_LINES = 100
ANY_CERTIFICATE = ssl._create_unverified_context()
HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


def test_every_listener_has_a_row() -> None:
    rows = {made for each in LISTENERS for made in each.made}
    # Of two stores one is a client's: both are in the same row.
    found = {f"{made.path}:{made.call}" for made in made_in_rooms()}
    found = {made for made in found if made.partition(":")[0] not in NO_LISTENERS}
    assert found - rows == set(), "tests/security/listeners.py: who may connect, what does it cost?"
    assert rows - found == set(), "a row without a listener"


def test_the_documentation_has_the_table() -> None:
    assert markdown_table() in DOCS.read_text()


# ---------------------------------------------------------------------- HTTP

HTTP: list[tuple[str, Callable[..., contextlib.AbstractContextManager[Victim]], object]] = [
    ("trainer", command, ["trainer", "--port=0"]),
    ("slim", slim_command, ["trainer", "--port=0"]),
    ("Brain", command, ["brain", "--port=0", "--auth=none"]),
    ("Brain with TLS", command_with_tls, ["brain", "--port=0", "--auth=none"]),
    ("standalone", program, "standalone"),
    ("probes", program, "probes"),
    ("cluster", command, ["cluster", "--port=0"]),
]
http_listeners = pytest.mark.parametrize(
    ("start", "argument"),
    [pytest.param(*each[1:], id=each[0]) for each in HTTP],
)


def uses_tls(victim: Victim) -> bool:
    """Whether it is the embedded API server, or was given a certificate."""
    words = [str(each) for each in victim.process.args]  # type: ignore[union-attr]  # a list
    return "cluster" in words or any(each.startswith("--tls-") for each in words)


def answers(victim: Victim) -> bool:
    """Whether somebody new gets an answer, of whatever kind."""
    host, port = split_address(victim.address)
    made: type[http.client.HTTPConnection] = http.client.HTTPConnection
    connection = made(host, port, timeout=5)
    if uses_tls(victim):
        connection = http.client.HTTPSConnection(host, port, timeout=5, context=ANY_CERTIFICATE)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status in {200, 401, 403, 404}
    except OSError:
        return False
    finally:
        connection.close()


@pytest.mark.slow
@http_listeners
def test_idle_connections_keep_nobody_out(
    start: Callable[..., contextlib.AbstractContextManager[Victim]],
    argument: object,
    tmp_path: Path,
) -> None:
    with start(argument, tmp_path) as victim:
        assert answers(victim)
        before = victim.cost()
        with silence(victim.address, 400):
            eventually(lambda: answers(victim), 15, "nobody new is answered")
            held = victim.cost()
            assert held.threads <= before.threads + 2
            most = MOST_MEMORY_IN_TLS if uses_tls(victim) else MOST_MEMORY
            assert held.memory_bytes < before.memory_bytes + most
        assert victim.log_lines() < MOST_LINES, victim.log_path.read_text()[:2000]
        eventually(lambda: victim.cost().descriptors < before.descriptors + 20, 20, "they stay")


@pytest.mark.slow
@http_listeners
def test_a_head_is_not_kept(
    start: Callable[..., contextlib.AbstractContextManager[Victim]],
    argument: object,
    tmp_path: Path,
) -> None:
    with start(argument, tmp_path) as victim:
        assert answers(victim)
        before = victim.cost()
        headers = b"x-filler: " + b"y" * 1000 + b"\r\n"
        for piece in (headers, b"z"):
            flood(victim.address, HEAD, piece, 300, ANY_CERTIFICATE if uses_tls(victim) else None)
            assert victim.cost().memory_bytes < before.memory_bytes + MOST_MEMORY
            eventually(lambda: answers(victim), 10, "nobody new is answered")
        assert victim.log_lines() < MOST_LINES


@pytest.mark.slow
@pytest.mark.parametrize(("start", "argument"), [pytest.param(*HTTP[0][1:], id=HTTP[0][0])])
def test_bad_requests_fill_no_log(
    start: Callable[..., contextlib.AbstractContextManager[Victim]],
    argument: object,
    tmp_path: Path,
) -> None:
    with start(argument, tmp_path) as victim:
        churn(victim.address, 300, b"this is no HTTP\r\n\r\n")
        eventually(lambda: answers(victim), 10, "nobody new is answered")
        assert victim.log_lines() < MOST_LINES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "argument"), [pytest.param(*each[1:], id=each[0]) for each in HTTP[:2]]
)
def test_a_head_that_trickles_is_not_waited_for(
    start: Callable[..., contextlib.AbstractContextManager[Victim]],
    argument: object,
    tmp_path: Path,
) -> None:
    def is_ended(sock: socket.socket) -> bool:
        try:
            sock.sendall(b"y")
        except OSError:
            return True
        return False

    with start(argument, tmp_path) as victim, silence(victim.address, 5, HEAD) as held:
        eventually(lambda: False not in [is_ended(each) for each in held], 15, "it is waited for")
        assert answers(victim)


# ---------------------------------------------------------------------- handshakes


def has_proved(address: str) -> bool:
    """Whether somebody with the job's token gets in."""
    try:
        with socket.create_connection(split_address(address), 5) as sock:
            handshake.call(sock, TOKEN, "a caller")
    except (OSError, handshake.HandshakeError, handshake.FrameError):
        return False
    return True


PROVING = pytest.mark.parametrize(
    ("kind", "newcomers"), [("consumer", 32), ("parameter_server", 64)]
)


@PROVING
def test_silent_connections_leave_descriptors_and_threads(
    kind: str, newcomers: int, tmp_path: Path
) -> None:
    with program(kind, tmp_path) as victim:
        address = victim.address.partition(" ")[0]
        assert has_proved(address)
        before = victim.cost()
        with silence(address, 240):
            eventually(lambda: has_proved(address), 20, "no data worker gets in")
            assert victim.ask() == "done"
            held = victim.cost()
            assert held.threads <= before.threads + newcomers + 4
            assert held.descriptors <= before.descriptors + newcomers + 4
            assert held.memory_bytes < before.memory_bytes + MOST_MEMORY
        assert victim.log_lines() < MOST_LINES


@PROVING
def test_what_is_no_handshake_fills_no_log(kind: str, newcomers: int, tmp_path: Path) -> None:
    with program(kind, tmp_path) as victim:
        address, _, local = victim.address.partition(" ")
        before = victim.cost()
        churn(address, 300, b"GET / HTTP/1.1\r\n\r\n" * 10)
        if local:
            churn(local, 300, b"GET / HTTP/1.1\r\n\r\n" * 10)
        assert flood(address, b"", b"\xff", 20) < 20 * MIB
        eventually(lambda: has_proved(address), 20, "no data worker gets in")
        assert victim.ask() == "done"
        assert victim.cost().memory_bytes < before.memory_bytes + MOST_MEMORY
        assert victim.log_lines() < MOST_LINES


@pytest.mark.parametrize("said", [b"", b"PNS1" + b"\x10" + bytes(15), b"GET / HTTP/1.1\r\n\r\n"])
def test_descriptors_that_strangers_send_are_not_kept(said: bytes, tmp_path: Path) -> None:
    with program("consumer", tmp_path) as victim:
        local = victim.address.partition(" ")[2]
        before = victim.cost()
        for _ in range(50):
            with connected(local) as sock, Path(__file__).open("rb") as file:
                socket.send_fds(sock, [said or b"PNS1"], [file.fileno()] * 4)
        eventually(lambda: victim.cost().descriptors <= before.descriptors + 2, 5, "they are kept")
        assert victim.ask() == "done"


def joins(address: str) -> bool:
    """Whether a member gets into the group."""
    hello = {"generation": 1, "index": 1}
    channel = step_barrier.connect(address, hello, TOKEN, lambda: False, 10)
    with contextlib.closing(channel):
        try:
            channel.receive(lambda: False, patient(10))
        except step_barrier.GroupBrokenError as error:
            return "closed" in str(error)  # by a leader that has formed its group
    return True


def test_a_group_forms_among_silent_connections(tmp_path: Path) -> None:
    with program("leader", tmp_path) as victim:
        before = victim.cost()
        for said in (b"", b"\x01"):
            with silence(victim.address, 240, said):
                assert joins(victim.address)
                assert victim.ask() == "done"
                held = victim.cost()
                assert held.threads <= before.threads
                assert held.descriptors <= before.descriptors + 64 + 4
        assert victim.log_lines() < MOST_LINES


def test_what_comes_before_a_hello_is_not_kept(tmp_path: Path) -> None:
    with program("leader", tmp_path) as victim:
        before = victim.cost()
        flood(victim.address, (1 << 30).to_bytes(4, "little"), b"\x00", 300)
        assert joins(victim.address)
        assert victim.cost().memory_bytes < before.memory_bytes + MOST_MEMORY


# ---------------------------------------------------------------------- the others


def test_a_group_sums_among_idle_connections(tmp_path: Path) -> None:
    with program("store", tmp_path) as victim:
        host, port = split_address(victim.address)
        with silence(victim.address, 64):
            assert victim.ask() == "done"
        for other in ("127.0.0.1", "127.0.0.8"):  # it listens where it was told to, only
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((other, port), 5)
        assert host == "127.0.0.9"


RUBBISH = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff\x00\n",
    b"null\n",
    b"[" * 100_000 + b"\n",
    b"{}\n",
    b'{"data_workers": 1e999, "options": {}}\n',
    b'{"data_workers": 100000, "options": {}}\n',
    b'{"data_workers": 0, "options": {}}\n',
    b'{"data_workers": 0, "options": {"share": {"group": 3}}}\n',
)


def told(address: str, said: bytes) -> bytes:
    """All that somebody is told who says this."""
    with connected(address) as sock:
        sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            return sock.makefile("rb").read()
    return b""


def test_a_share_group_does_not_notice_strangers(tmp_path: Path) -> None:
    options = options_of_group("search", ShareOrder.FREE, 0, InputOptions())
    wants = {"data_workers": 0, "options": options.model_dump(mode="json")}
    with program("keeper", tmp_path) as victim:
        address = victim.address
        member, environ = share_membership.join(tmp_path, wants)
        before = victim.cost()
        for said in (b"", b'{"data_workers"'):  # nothing, or half of something
            with silence(address, 240, said):
                other, found = share_membership.join(tmp_path, wants)
                assert found == environ
                other.close()
                assert victim.ask() == "done"
                held = victim.cost()
                assert held.threads <= before.threads + 1  # the one that loads the server ends
                assert held.descriptors <= before.descriptors + share_keeper.MAX_NEWCOMERS + 4
        for said in RUBBISH:
            answer = told(address, said)
            assert environ[names.JOB_TOKEN].encode() not in answer
            assert not answer or set(json.loads(answer)) == {"error"}
            churn(address, 100, said)
        assert flood(address, b"", b"x", 20) < 4 * MIB
        with socket.socket(socket.AF_UNIX) as sock, Path(__file__).open("rb") as file:
            sock.connect(address)
            socket.send_fds(sock, [b"\n"], [file.fileno()] * 4)
        eventually(lambda: victim.cost().descriptors <= before.descriptors, 10, "they are kept")
        assert victim.cost().memory_bytes < before.memory_bytes + MOST_MEMORY
        assert victim.log_lines() < MOST_LINES
        other, found = share_membership.join(tmp_path, wants)
        assert found == environ
        for each in (member, other):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):  # its connection is as it was
                each.recv(1)
            each.close()


def test_the_cache_of_a_node_does_not_notice_strangers(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"content")
    with program("cache", tmp_path) as victim:
        place, remote = victim.address.split()

        def given() -> bytes | None:
            return read(CacheClient(f"@{place}", answer_seconds=patient(10)), tmp_path, "data.bin")

        eventually(lambda: given() == b"content", 10, "it keeps nothing")
        before = victim.cost()
        for address in (place, remote):
            for said in (b"", b"\x01"):
                with silence(address, 240, said):
                    assert given() == b"content"
                    assert victim.ask() == "done"
                    held = victim.cost()
                    assert held.threads <= before.threads + newcomers.MOST + 2
                    assert held.descriptors <= before.descriptors + newcomers.MOST + 8
            for said in RUBBISH:
                churn(address, 30, said)
            assert flood(address, b"", b"x", 20) < 4 * MIB
        with (
            contextlib.suppress(OSError),
            connected(place) as sock,
            Path(__file__).open("rb") as file,
        ):
            socket.send_fds(sock, [b"x"], [file.fileno()] * 4)
        eventually(lambda: victim.cost().descriptors <= before.descriptors, 10, "they are kept")
        assert victim.cost().memory_bytes < before.memory_bytes + MOST_MEMORY
        assert victim.log_lines() < MOST_LINES
        assert given() == b"content"


def test_probes_of_readiness_leave_nothing(tmp_path: Path) -> None:
    with program("readiness", tmp_path) as victim:
        before = victim.cost()
        churn(victim.address, 1000, b"")
        with silence(victim.address, 300):
            assert victim.ask() == "done"
            assert victim.cost().threads == before.threads
            eventually(
                lambda: victim.cost().descriptors <= before.descriptors + 2, 10, "they are kept"
            )


def test_statements_of_strangers_are_not_kept(tmp_path: Path) -> None:
    with program("processes", tmp_path) as victim:
        before = victim.cost()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for _ in range(2000):
                with contextlib.suppress(BlockingIOError):
                    sender.sendto(
                        b'{"rank": 0, "world_size": 1, "trains": true}' + b" " * 4000,
                        f"\0{victim.address}",
                    )
        assert victim.ask() == "knows 0"
        assert victim.cost().descriptors <= before.descriptors + 2
        assert victim.cost().memory_bytes < before.memory_bytes + MOST_MEMORY


def test_the_figures_are_those_of_few_descriptors(tmp_path: Path) -> None:
    with program("consumer", tmp_path) as victim:
        limits = Path(f"/proc/{victim.process.pid}/limits").read_text()
        assert f"Max open files            {DESCRIPTORS} " in limits


def test_strangers_on_the_slow_network_are_sent_away(tmp_path: Path) -> None:
    async def main() -> None:
        relay = Relay(tmp_path, "127.0.0.1")
        await relay.open()
        try:
            host, port = (tmp_path / PLACE).read_text().split()
            for _ in range(400):
                reader, writer = await asyncio.open_connection(host, int(port))
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.wait_for(reader.read(), 20) == b""
                writer.close()
            assert not relay._tasks
        finally:
            await relay.aclose()

    asyncio.run(main())
