"""Whoever sits between the members of a group can end it, and neither join it nor speak in it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import pytest

from penstock.trainer.group.step_barrier import GroupBrokenError, Leader, Listener, connect
from tests.security.relay import Relay, relaying

TOKEN = "a token that nobody is to hear"


def never() -> bool:
    return False


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as found:
        yield found


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener("127.0.0.1")
    yield found
    found.close()


@pytest.fixture
def relay(listener: Listener) -> Iterator[Relay]:
    with relaying(listener.address, raw=True) as found:
        yield found


def lead(listener: Listener, pool: ThreadPoolExecutor, timeout: float = 10) -> Future[Leader]:
    return pool.submit(listener.accept, TOKEN, 1, 2, never, timeout)


def test_the_token_is_not_heard(listener: Listener, pool: ThreadPoolExecutor, relay: Relay) -> None:
    leading = lead(listener, pool)
    hello = {"generation": 1, "index": 1}
    with (
        closing(connect(relay.address, hello, TOKEN, never, 5)) as member,
        closing(leading.result(10)) as leader,
    ):
        leader.publish({"go": 1}, never, 5)
        assert member.receive(never, 5) == {"go": 1}
    assert b"generation" in relay.seen
    assert TOKEN.encode() not in relay.seen


def test_a_hello_that_was_heard_is_no_way_in(
    listener: Listener, pool: ThreadPoolExecutor, relay: Relay
) -> None:
    hello = {"generation": 1, "index": 1}
    leading = lead(listener, pool)
    with closing(connect(relay.address, hello, TOKEN, never, 5)):
        leading.result(10).close()
    at = relay.seen.index(b"version") - 6  # a length, then the head of a map and of its first key
    again = lead(listener, pool, timeout=2)
    host, _, port = listener.address.rpartition(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(relay.seen[at:])
        with pytest.raises(GroupBrokenError, match="1 of 2 members came"):
            again.result(10)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "changed": lambda data: data.replace(b"consumed", b"consumeD"),
    "repeated": lambda data: data * 2 if b"consumed" in data else data,
    "left out": lambda data: b"" if b"consumed" in data else data,
}


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_is_said_in_a_members_place(
    listener: Listener, pool: ThreadPoolExecutor, relay: Relay, name: str
) -> None:
    leading = lead(listener, pool)
    hello = {"generation": 1, "index": 1}
    done = threading.Event()

    def once(data: bytes) -> bytes:
        if b"consumed" not in data or done.is_set():
            return data
        done.set()
        return CHANGES[name](data)

    with (
        closing(connect(relay.address, hello, TOKEN, never, 5)) as member,
        closing(leading.result(10)) as leader,
    ):
        relay.edit = once
        member.send({"consumed": 1}, never, 5)
        if name == "repeated":
            assert leader.gather({}, never, 5)[1] == {"consumed": 1}
        assert done.wait(10)
        member.send({"consumed": 2}, never, 5)
        with pytest.raises(GroupBrokenError, match="not what the other end sent"):
            leader.gather({}, never, 5)


def test_nothing_is_said_in_the_leaders_place(
    listener: Listener, pool: ThreadPoolExecutor, relay: Relay
) -> None:
    leading = lead(listener, pool)
    hello = {"generation": 1, "index": 1}
    with (
        closing(connect(relay.address, hello, TOKEN, never, 5)) as member,
        closing(leading.result(10)) as leader,
    ):
        relay.edit = lambda data: data.replace(b"port", b"pork")
        leader.publish({"port": 1}, never, 5)
        with pytest.raises(GroupBrokenError, match="not what the other end sent"):
            member.receive(never, 5)


def test_a_leader_without_the_token_is_not_heard(pool: ThreadPoolExecutor) -> None:
    with closing(Listener("127.0.0.1")) as false:
        leading = pool.submit(false.accept, "another", 1, 2, never, 2)
        hello = {"generation": 1, "index": 1}
        with (
            closing(connect(false.address, hello, TOKEN, never, 5)) as member,
            pytest.raises(GroupBrokenError),
        ):
            member.receive(never, 5)
        with pytest.raises(GroupBrokenError):
            leading.result(10)
