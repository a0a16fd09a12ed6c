"""Frames: whole messages or a FrameError, never a hang."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from penstock.data.errors import ConnectionLostError, FrameError, TooLargeError
from penstock.data.transport import frame
from penstock.data.transport.batch_codec import pack
from penstock.data.transport.layout import unpack

Pair = tuple[socket.socket, socket.socket]
Receive = Callable[[socket.socket, Callable[[int], memoryview]], frame.Frame]


def room(size: int) -> memoryview:
    return memoryview(bytearray(size))


def read(sock: socket.socket, allocate: Callable[[int], memoryview]) -> frame.Frame:
    return frame.Reader(sock).receive(allocate)


@pytest.fixture(params=[frame.receive, read])
def receive(request: pytest.FixtureRequest) -> Receive:
    """Both ways to receive: one message, or all that come from now on."""
    found: Receive = request.param
    return found


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
def test_what_is_sent_arrives(pair: Pair, receive: Receive, parts: list[bytes]) -> None:
    here, there = pair
    sender = threading.Thread(target=frame.send, args=(here, 3, ["head", 1, b"\0"], parts))
    sender.start()
    got = receive(there, room)
    sender.join()
    assert (got.kind, got.header, bytes(got.body)) == (3, ["head", 1, b"\0"], b"".join(parts))


def test_a_body_larger_than_a_chunk_arrives_in_place(pair: Pair, receive: Receive) -> None:
    here, there = pair
    body = os.urandom(frame.CHUNK_BYTES + 12345)
    memory = bytearray(len(body))
    sender = threading.Thread(target=frame.send, args=(here, 1, [], [body[:999], body[999:]]))
    sender.start()
    got = receive(there, lambda size: memoryview(memory)[:size])
    sender.join()
    assert memory == body
    assert got.body.obj is memory


class PartBy:
    """A socket that takes some bytes at a time, as one does whose time-out is over half-way."""

    def __init__(self, sock: socket.socket, size: int) -> None:
        self._sock, self._size = sock, size

    def sendmsg(self, parts: list[Any]) -> int:
        return self._sock.send(b"".join(bytes(memoryview(one)) for one in parts)[: self._size])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(200).astype(name).reshape(10, 20)
        for name in ("complex64", "longdouble", "float16", ">f8", ">c8", "M8[s]", "m8[D]", "?")
    ]
    + [np.array(3 + 1j), np.zeros((0, 3), np.complex64), np.array([["a", "bc"]])],
    ids=lambda one: f"{one.dtype}, {one.shape}",
)
def test_what_is_sent_in_parts_arrives_whole_of_whatever_type(
    pair: Pair, array: np.ndarray[Any, Any]
) -> None:
    here, there = pair
    packed = pack([array, 1, array[:5] if array.ndim else array])
    sending = cast("socket.socket", PartBy(here, 97))
    sent = frame.send(sending, 1, packed.structure, packed.parts, size=packed.size)
    got = frame.receive(there, room)
    assert sent > packed.size
    first, _, second = unpack(got.header, got.body, packed.size)
    for found, wanted in ((first, array), (second, array[:5] if array.ndim else array)):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()


def test_silence_is_a_timeout_and_not_an_error(pair: Pair, receive: Receive) -> None:
    frame.set_timeouts(pair[1], 0.1)
    with pytest.raises(TimeoutError):
        receive(pair[1], room)


@pytest.mark.parametrize("cut", [3, 30])
def test_a_stall_within_a_message_ends_it(pair: Pair, receive: Receive, cut: int) -> None:
    here, there = pair
    frame.set_timeouts(there, 0.2)
    whole = struct.pack("<4sBxxxIQ", frame.MAGIC, 1, 100, 0) + bytes(100)
    here.sendall(whole[:cut])
    began = time.monotonic()
    with pytest.raises(FrameError, match="stalled"):
        receive(there, room)
    assert time.monotonic() - began < 5


def test_a_large_message_has_to_be_there_by_its_deadline(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However quickly each piece of it comes."""
    monkeypatch.setattr(frame, "CHUNK_BYTES", 10)
    here, there = pair
    near, far = socket.socketpair()
    frame.send(near, 1, [], [bytes(1000)])
    whole = far.recv(1 << 16)
    near.close()
    far.close()
    ending = threading.Event()

    def trickle() -> None:
        for at in range(0, len(whole), 10):
            there.sendall(whole[at : at + 10])
            if ending.wait(0.05):
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    frame.set_timeouts(here, 60)
    try:
        with pytest.raises(ConnectionLostError, match="stalled"):
            frame.Reader(here).receive(room, time.monotonic() + 0.5)
        assert thread.is_alive(), "all of it would have come"
    finally:
        ending.set()
        thread.join()


def test_a_peer_that_trickles_is_ended_too(pair: Pair, receive: Receive) -> None:
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
            receive(there, room)
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
    pair: Pair, receive: Receive, data: bytes, said: str
) -> None:
    pair[0].sendall(data)
    with pytest.raises(FrameError, match=said):
        receive(pair[1], lambda size: pytest.fail(f"{size} bytes were allocated"))


@pytest.mark.parametrize("sent", [0, 10, 25])
def test_a_peer_that_goes_away_is_an_error(pair: Pair, receive: Receive, sent: int) -> None:
    here, there = pair
    here.sendall((struct.pack("<4sBxxxIQ", frame.MAGIC, 1, 100, 0) + bytes(100))[:sent])
    here.close()
    with pytest.raises(FrameError, match=r"closed|went away"):
        receive(there, room)


def test_a_message_that_is_too_large_is_not_sent(
    pair: Pair, receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "MAX_BODY_BYTES", 1000)
    with pytest.raises(TooLargeError, match="smaller batches"):
        frame.send(pair[0], 1, [], [bytes(1001)])
    frame.send(pair[0], 2, [])
    assert receive(pair[1], room).kind == 2


def test_whoever_does_not_read_is_given_up(pair: Pair) -> None:
    frame.set_timeouts(pair[0], 0.2)
    with pytest.raises(FrameError, match="stalled"):
        frame.send(pair[0], 1, [], [bytes(64 << 20)])


def test_descriptors_travel_with_a_message(receive: Receive) -> None:
    here, there = socket.socketpair()
    with here, there:
        read, write = os.pipe()
        frame.send(here, 1, ["pipe"], (), [write])
        os.close(write)
        got = receive(there, room)
        os.write(got.descriptors[0], b"hello")
        os.close(got.descriptors[0])
        assert os.read(read, 10) == b"hello"
        os.close(read)


def test_many_messages_in_one_arrive_apart(pair: Pair) -> None:
    here, there = pair
    sizes = [0, 1, 50, frame.BUFFER_BYTES - 30, 3, frame.BUFFER_BYTES, 100_000, *[7] * 2000]

    def send_all() -> None:
        for number, size in enumerate(sizes):
            frame.send(here, 1, [number], [bytes([number % 251]) * size])

    sender = threading.Thread(target=send_all)
    sender.start()
    reader = frame.Reader(there)
    for number, size in enumerate(sizes):
        got = reader.receive(room)
        assert got.header == [number]
        assert bytes(got.body) == bytes([number % 251]) * size
    sender.join()


def test_each_descriptor_stays_with_its_message() -> None:
    here, there = socket.socketpair()
    with here, there:
        reader, pipes = frame.Reader(there), [os.pipe() for _ in range(3)]
        for number, (_, write) in enumerate(pipes):
            frame.send(here, 1, ["before", number])
            frame.send(here, 2, ["pipe", number], (), [write])
            os.close(write)
            frame.send(here, 3, ["after", number])
        for number, (end, _) in enumerate(pipes):
            for kind in (1, 2, 3):
                got = reader.receive(room)
                assert (got.kind, got.header[1]) == (kind, number)
                assert len(got.descriptors) == (kind == 2)
                for descriptor in got.descriptors:
                    os.write(descriptor, bytes([number]))
                    os.close(descriptor)
            assert os.read(end, 10) == bytes([number])
            os.close(end)


@pytest.mark.parametrize("cut", [1, 19, 20, 21])
def test_a_descriptor_stays_with_its_message_across_the_end_of_the_buffer(cut: int) -> None:
    here, there = socket.socketpair()
    with here, there, Path(os.devnull).open() as null:
        frame.set_timeouts(there, 5)
        rest = frame.BUFFER_BYTES - cut - frame.send(here, 1, [], [b"x"])
        overhead = frame.send(here, 1, [], [b"x"]) - 1
        frame.send(here, 1, [], [bytes(rest - 2 * overhead - 1)])
        frame.send(here, 2, ["pipe"], (), [null.fileno()])
        frame.send(here, 3, ["after"])
        reader = frame.Reader(there)
        got = [reader.receive(room) for _ in range(5)]
        for descriptor in [descriptor for one in got for descriptor in one.descriptors]:
            os.close(descriptor)
        assert [one.kind for one in got] == [1, 1, 1, 2, 3]
        assert [len(one.descriptors) for one in got] == [0, 0, 0, 1, 0]


def test_a_header_that_cannot_be_is_an_error(pair: Pair, receive: Receive) -> None:
    here, there = pair
    header = b"\x81\x91\x01\x01"  # a list as the key of a map
    here.sendall(struct.pack("<4sBxxxIQ", frame.MAGIC, 1, len(header), 0) + header)
    with pytest.raises(FrameError, match="no msgpack"):
        receive(there, room)
