"""Frames: whole messages or a FrameError, never a hang."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.data import frame
from penstock.data.errors import FrameError, TooLargeError

Pair = tuple[socket.socket, socket.socket]


def room(size: int) -> memoryview:
    return memoryview(bytearray(size))


@pytest.fixture(params=["tcp", "unix"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    if request.param == "unix":
        ends = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            here = socket.create_connection(server.getsockname())
            there, _ = server.accept()
        ends = (here, there)
    for end in ends:
        frame.set_timeouts(end, 5)
    yield ends
    for end in ends:
        end.close()


@pytest.mark.parametrize("parts", [[], [b"abc"], [b"x" * 70_000, b"", b"y"], [b"z"] * 3000])
def test_what_is_sent_arrives(pair: Pair, parts: list[bytes]) -> None:
    here, there = pair
    sender = threading.Thread(target=frame.send, args=(here, 3, ["head", 1, b"\0"], parts))
    sender.start()
    got = frame.receive(there, room)
    sender.join()
    assert (got.kind, got.header, bytes(got.body)) == (3, ["head", 1, b"\0"], b"".join(parts))


def test_a_body_larger_than_a_chunk_arrives_in_place(pair: Pair) -> None:
    here, there = pair
    body = os.urandom(frame.CHUNK_BYTES + 12345)
    memory = bytearray(len(body))
    sender = threading.Thread(target=frame.send, args=(here, 1, [], [body[:999], body[999:]]))
    sender.start()
    got = frame.receive(there, lambda size: memoryview(memory)[:size])
    sender.join()
    assert memory == body
    assert got.body.obj is memory


def test_silence_is_a_timeout_and_not_an_error(pair: Pair) -> None:
    frame.set_timeouts(pair[1], 0.1)
    with pytest.raises(TimeoutError):
        frame.receive(pair[1], room)


@pytest.mark.parametrize("cut", [3, 30])
def test_a_stall_within_a_message_ends_it(pair: Pair, cut: int) -> None:
    here, there = pair
    frame.set_timeouts(there, 0.2)
    whole = struct.pack("<4sBxxxIQ", frame.MAGIC, 1, 100, 0) + bytes(100)
    here.sendall(whole[:cut])
    began = time.monotonic()
    with pytest.raises(FrameError, match="stalled"):
        frame.receive(there, room)
    assert time.monotonic() - began < 5


def test_a_peer_that_trickles_is_ended_too(pair: Pair) -> None:
    here, there = pair
    frame.set_timeouts(there, 0.5)
    here.sendall(struct.pack("<4sBxxxIQ", frame.MAGIC, 1, 100_000, 0))
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(0.05):
            try:
                here.sendall(b"x")
            except OSError:
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        with pytest.raises(FrameError, match="stalled"):
            frame.receive(there, room)
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "does not speak this protocol"),
        (struct.pack("<4sBxxxIQ", frame.MAGIC, 1, 1 << 31, 0), "claims"),
        (struct.pack("<4sBxxxIQ", frame.MAGIC, 1, 1, 1 << 40), "claims"),
        (struct.pack("<4sBxxxIQ", frame.MAGIC, 1, 1, 0) + b"\xc1", "no msgpack"),
    ],
)
def test_garbage_is_refused_before_anything_is_allocated(
    pair: Pair, data: bytes, said: str
) -> None:
    pair[0].sendall(data)
    with pytest.raises(FrameError, match=said):
        frame.receive(pair[1], lambda size: pytest.fail(f"{size} bytes were allocated"))


@pytest.mark.parametrize("sent", [0, 10, 25])
def test_a_peer_that_goes_away_is_an_error(pair: Pair, sent: int) -> None:
    here, there = pair
    here.sendall((struct.pack("<4sBxxxIQ", frame.MAGIC, 1, 100, 0) + bytes(100))[:sent])
    here.close()
    with pytest.raises(FrameError, match=r"closed|went away"):
        frame.receive(there, room)


def test_a_message_that_is_too_large_is_not_sent(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "MAX_BODY_BYTES", 1000)
    with pytest.raises(TooLargeError, match="smaller batches"):
        frame.send(pair[0], 1, [], [bytes(1001)])
    frame.send(pair[0], 2, [])
    assert frame.receive(pair[1], room).kind == 2


def test_whoever_does_not_read_is_given_up(pair: Pair) -> None:
    frame.set_timeouts(pair[0], 0.2)
    with pytest.raises(FrameError, match="stalled"):
        frame.send(pair[0], 1, [], [bytes(64 << 20)])


def test_descriptors_travel_with_a_message() -> None:
    here, there = socket.socketpair()
    with here, there:
        read, write = os.pipe()
        frame.send(here, 1, ["pipe"], (), [write])
        os.close(write)
        got = frame.receive(there, room)
        os.write(got.descriptors[0], b"hello")
        os.close(got.descriptors[0])
        assert os.read(read, 10) == b"hello"
        os.close(read)
