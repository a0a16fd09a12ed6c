"""The control channel of a group: agreement, interruption and strangers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgpack
import pytest

from penstock.trainer.group.step_barrier import Channel, GroupBrokenError, Leader, Listener, connect
from tests.patience import patient


def never() -> bool:
    return False


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener("127.0.0.1")
    yield found
    found.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


def join(listener: Listener, index: int, token: str = "t", generation: int = 1) -> Channel:
    hello = {"generation": generation, "index": index}
    return connect(listener.address, hello, token, never, timeout=5)


def form(listener: Listener, pool: ThreadPoolExecutor, size: int) -> tuple[Leader, list[Channel]]:
    leading: Future[Leader] = pool.submit(listener.accept, "t", 1, size, never, 10)
    members = [join(listener, index) for index in range(1, size)]
    return leading.result(10), members


def close(*parts: Any) -> None:
    for part in parts:
        part.close()


def test_all_get_the_same_verdict(listener: Listener, pool: ThreadPoolExecutor) -> None:
    leader, members = form(listener, pool, 4)
    for step in range(20):
        for index, member in enumerate(members, start=1):
            member.send({"step": step, "from": index}, never, 5)
        arrived = leader.gather({"step": step, "from": 0}, never, 5)
        assert [message["from"] for message in arrived] == [0, 1, 2, 3]
        leader.publish({"go": step}, never, 5)
        assert [member.receive(never, 5) for member in members] == [{"go": step}] * 3
    close(leader, *members)


def test_large_messages_arrive_whole(listener: Listener, pool: ThreadPoolExecutor) -> None:
    leader, [member] = form(listener, pool, 2)
    payload = bytes(range(256)) * 40_000
    sending = pool.submit(member.send, {"payload": payload}, never, 20)
    [_, received] = leader.gather({}, never, 20)
    sending.result(20)
    assert received["payload"] == payload
    close(leader, member)


def test_a_member_that_stands_still_does_not_hold_who_is_called_away(
    listener: Listener, pool: ThreadPoolExecutor
) -> None:
    leader, members = form(listener, pool, 3)
    members[0].send({}, never, 5)
    ended = threading.Event()
    gathering = pool.submit(leader.gather, {}, ended.is_set, 60)
    waiting = pool.submit(members[0].receive, ended.is_set, 60)
    time.sleep(0.3)
    began = time.monotonic()
    ended.set()
    for each in (gathering, waiting):
        with pytest.raises(GroupBrokenError, match="the trainer ended this group"):
            each.result(5)
    assert time.monotonic() - began < 1
    close(leader, *members)


def test_a_member_that_dies_is_named(listener: Listener, pool: ThreadPoolExecutor) -> None:
    leader, members = form(listener, pool, 3)
    members[1].close()
    with pytest.raises(GroupBrokenError) as caught:
        leader.gather({}, never, 5)
    assert caught.value.lost == (2,)
    close(leader)
    with pytest.raises(GroupBrokenError) as caught:
        members[0].receive(never, 5)
    assert caught.value.lost == (0,)
    close(members[0])


@pytest.mark.parametrize(
    "hello",
    [
        {"token": "wrong"},
        {"generation": 2},
        {"index": 0},
        {"index": 2},
        {"index": "1"},
        {"version": 99},
    ],
)
def test_strangers_are_turned_away(
    listener: Listener, pool: ThreadPoolExecutor, hello: dict[str, Any]
) -> None:
    leading = pool.submit(listener.accept, "t", 1, 2, never, 10)
    token = hello.pop("token", "t")
    stranger = connect(
        listener.address, {"generation": 1, "index": 1, **hello}, token, never, timeout=5
    )
    with pytest.raises(GroupBrokenError):
        stranger.receive(never, 5)
    member = join(listener, 1)
    leader = leading.result(10)
    close(leader, member, stranger)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x00", b"\x03\x00\x00\x00\xc1\xc1\xc1", b""],
)
def test_garbage_does_not_disturb_a_group_that_forms(
    listener: Listener, pool: ThreadPoolExecutor, garbage: bytes
) -> None:
    leading = pool.submit(listener.accept, "t", 1, 2, never, 15)
    host, _, port = listener.address.rpartition(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)
        member = join(listener, 1)
        leader = leading.result(15)
    close(leader, member)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x00",  # part of a length, and no more
        b"\xff\xff\xff\x3f",  # a thousand million bytes to come
        b"\x00\x10\x00\x00" + b"x" * 100,
        b"\x04\x00\x00\x00\x81\x91\x01\x02",  # a list as a key
        b"\x00\x10\x00\x00" + b"\x91" * 4096,  # lists in lists
    ],
)
def test_strangers_hold_up_no_member(
    listener: Listener, pool: ThreadPoolExecutor, said: bytes
) -> None:
    began = time.monotonic()
    leading = pool.submit(listener.accept, "t", 1, 3, never, 30)
    host, _, port = listener.address.rpartition(":")
    strangers = [socket.create_connection((host, int(port)), 5) for _ in range(200)]
    for each in strangers:
        each.sendall(said)
    members = [join(listener, index) for index in (1, 2)]
    leader = leading.result(30)
    # One that says a word in two seconds held up everybody for two seconds.
    assert time.monotonic() - began < patient(8.0)
    close(leader, *members, *strangers)


def test_a_group_forms_over_ipv6(pool: ThreadPoolExecutor) -> None:
    listener = Listener("::1")
    leader, [member] = form(listener, pool, 2)
    close(leader, member, listener)


def test_a_group_that_is_not_complete_in_time_is_given_up(listener: Listener) -> None:
    with pytest.raises(GroupBrokenError, match="1 of 3 members came"):
        listener.accept("t", 1, 3, never, 0.3)


def test_a_leader_that_is_away_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(GroupBrokenError, match="cannot be reached"):
        connect(address, {}, "t", never, timeout=0.5)


@pytest.mark.parametrize("content", [[1, 2], 7, "text"])
def test_a_message_that_is_no_map_ends_the_connection(
    listener: Listener, pool: ThreadPoolExecutor, content: object
) -> None:
    leader, [member] = form(listener, pool, 2)
    member.send_packed(msgpack.packb(content), never, 5)
    with pytest.raises(GroupBrokenError, match="no map"):
        leader.gather({}, never, 5)
    close(leader, member)


def test_a_message_without_its_tag_ends_the_connection(
    listener: Listener, pool: ThreadPoolExecutor
) -> None:
    leader, [member] = form(listener, pool, 2)
    payload: bytes = msgpack.packb({"go": 1})
    member.socket.sendall(len(payload).to_bytes(4, "little") + payload)
    with pytest.raises(GroupBrokenError, match="not what the other end sent"):
        leader.gather({}, never, 5)
    close(leader, member)


def test_a_stranger_gets_no_memory_for_a_long_hello(
    listener: Listener, pool: ThreadPoolExecutor
) -> None:
    leading = pool.submit(listener.accept, "t", 1, 2, never, 15)
    host, _, port = listener.address.rpartition(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall((100 << 20).to_bytes(4, "little"))
        stranger.settimeout(10)
        while stranger.recv(4096):  # its greeting, and then the end
            pass
        member = join(listener, 1)
        leader = leading.result(15)
    close(leader, member)
