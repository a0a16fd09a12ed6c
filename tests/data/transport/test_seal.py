"""Seals: what arrives is what was sent, in that order and once, or a FrameError."""

from __future__ import annotations

import builtins
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from penstock.crds import environment as names
from penstock.data.errors import DataError, FrameError, HandshakeError
from penstock.data.transport import frame, handshake, seal
from penstock.data.transport.seal import SealKind, Seals, make_seals

TRANSCRIPT = b"what both said".ljust(32)
Pair = tuple[socket.socket, socket.socket]


def tcp_pair() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    for end in (here, there):
        frame.set_timeouts(end, 5)
    return here, there


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = tcp_pair()
    with here, there:
        yield here, there


@pytest.fixture(params=list(SealKind))
def ends(request: pytest.FixtureRequest) -> tuple[Seals, Seals]:
    """Both ends of a connection, with each kind of seal."""
    kind = SealKind(request.param)
    caller, listener = (make_seals(kind, "token", TRANSCRIPT, caller=who) for who in (True, False))
    return caller, listener


def room(size: int) -> memoryview:
    return memoryview(bytearray(size))


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b""],
        [b"abc"],
        [b"x" * 70_000, b"", b"y"],
        [b"z"] * 3000,
        [np.arange(600_000, dtype=np.float32).reshape(2, 3, -1), np.zeros((0, 4)), b"end"],
        [np.ones((40, 5), np.float16), np.zeros(9, bool)],
        [os.urandom((1 << 20) + 7)],
    ],
)
def test_what_is_sealed_arrives(pair: Pair, ends: tuple[Seals, Seals], parts: list[Any]) -> None:
    here, there = pair
    wanted = b"".join(bytes(memoryview(part)) for part in parts if memoryview(part).nbytes)

    def sends() -> None:
        for number in range(3):
            frame.send(here, 3, ["head", number], parts, seal=ends[0].sending)

    thread = threading.Thread(target=sends)
    thread.start()
    reader = frame.Reader(there, ends[1].receiving)
    for number in range(3):
        got = reader.receive(room)
        assert (got.kind, got.header, bytes(got.body)) == (3, ["head", number], wanted)
    thread.join()


def sealed(ends: tuple[Seals, Seals], *bodies: bytes) -> list[bytearray]:
    """Frames as they go over the wire."""
    here, there = socket.socketpair()
    with here, there:
        found = []
        for body in bodies:
            size = frame.send(here, 5, ["head"], [body] if body else [], seal=ends[0].sending)
            found.append(bytearray(there.recv(size, socket.MSG_WAITALL)))
    return found


def receive(pair: Pair, data: bytes, seals: Seals, count: int) -> list[bytes]:
    """The bodies of what arrives, of so many frames."""
    here, there = pair
    here.sendall(data)
    here.shutdown(socket.SHUT_WR)
    reader = frame.Reader(there, seals.receiving)
    return [bytes(reader.receive(room).body) for _ in range(count)]


@pytest.mark.parametrize("body", [b"", b"the body"])
def test_no_bit_of_a_frame_can_be_changed(ends: tuple[Seals, Seals], body: bytes) -> None:
    [whole] = sealed(ends, body)
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << (at % 8)
        here, there = tcp_pair()
        fresh = type(ends[1].receiving)(ends[1].receiving._key)
        with here, there, pytest.raises(FrameError):
            receive((here, there), bytes(changed), Seals(fresh, fresh), 1)


@pytest.mark.parametrize(
    "order",
    [(0, 0), (1,), (0, 2), (1, 0), (2, 1, 0)],
    ids=["repeated", "first left out", "left out", "swapped", "backwards"],
)
def test_frames_come_once_and_in_turn(
    pair: Pair, ends: tuple[Seals, Seals], order: tuple[int, ...]
) -> None:
    frames = sealed(ends, b"one", b"two", b"three")
    data = b"".join(bytes(frames[index]) for index in order)
    with pytest.raises(FrameError, match="not what the other end sent"):
        receive(pair, data, ends[1], len(order))


def test_what_one_end_sent_is_not_taken_as_said_by_the_other(
    pair: Pair, ends: tuple[Seals, Seals]
) -> None:
    [whole] = sealed(ends, b"body")
    with pytest.raises(FrameError, match="not what the other end sent"):
        receive(pair, bytes(whole), ends[0], 1)  # back to who sent it


def test_a_body_of_another_frame_does_not_fit(pair: Pair, ends: tuple[Seals, Seals]) -> None:
    first, second = sealed(ends, b"one!", b"two!")
    size = len(b"one!") + seal.TAG_BYTES
    with pytest.raises(FrameError, match="body of message 0 is not what"):
        receive(pair, bytes(first[:-size] + second[-size:]), ends[1], 1)


def test_no_memory_is_taken_for_a_body_before_its_length_is_known_to_be_right(
    pair: Pair, ends: tuple[Seals, Seals]
) -> None:
    [whole] = sealed(ends, b"body")
    whole[15] ^= 1  # of the body's length: 16 MiB more
    here, there = pair
    here.sendall(whole)
    asked: list[int] = []

    def allocate(size: int) -> memoryview:
        asked.append(size)
        return room(size)

    with pytest.raises(FrameError, match="header of message 0"):
        frame.Reader(there, ends[1].receiving).receive(allocate)
    assert not asked


def test_only_encryption_hides_what_is_said() -> None:
    for kind in SealKind:
        ends = make_seals(kind, "t", TRANSCRIPT, caller=True)
        [whole] = sealed((ends, ends), b"the body of it")
        hidden = b"head" not in whole and b"the body" not in whole
        assert hidden == (kind is SealKind.AES_GCM)


def test_keys_differ_by_token_connection_direction_and_kind() -> None:
    keys = {
        one._key
        for token in ("a", "b")
        for said in (TRANSCRIPT, bytes(32))
        for kind in SealKind
        for one in (
            make_seals(kind, token, said, caller=True).sending,
            make_seals(kind, token, said, caller=True).receiving,
        )
    }
    assert len(keys) == 2 * 2 * 2 * len(SealKind)


# ---------------------------------------------------------------------- what the handshake chooses


Meet = Callable[..., tuple[Any, Any]]


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Meet:
    """Shake hands over TCP; ``here``, ``there``: what each end offers, as it would itself."""

    def meet(here: list[str] | None = None, there: list[str] | None = None) -> tuple[Any, Any]:
        offers, original = threading.local(), seal.offered
        own = lambda: getattr(offers, "own", None) or original()  # noqa: E731 - of a thread
        monkeypatch.setattr(seal, "offered", own)
        monkeypatch.setattr(handshake, "offered", own)
        results: dict[str, Any] = {}
        caller, listener = tcp_pair()

        def run(side: str, offer: list[str] | None, sock: socket.socket) -> None:
            offers.own = offer
            act = handshake.call if side == "caller" else handshake.answer
            try:
                results[side] = act(sock, "token", side)
            except DataError as error:
                results[side] = error

        with caller, listener:
            threads = [
                threading.Thread(target=run, args=("caller", here, caller)),
                threading.Thread(target=run, args=("listener", there, listener)),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        return results["caller"], results["listener"]

    return meet


GMAC, BLAKE2B, GCM = (
    kind.value for kind in (SealKind.AES_GMAC, SealKind.BLAKE2B, SealKind.AES_GCM)
)


@pytest.mark.parametrize(
    ("here", "there", "wanted"),
    [
        ([GMAC, BLAKE2B, GCM], [GMAC, BLAKE2B, GCM], "_Gmac"),
        ([BLAKE2B], [GMAC, BLAKE2B, GCM], "_Blake2b"),
        ([GMAC, BLAKE2B, GCM], [BLAKE2B], "_Blake2b"),
        ([GCM], [GMAC, BLAKE2B, GCM], "_Gcm"),
        ([GMAC, BLAKE2B, GCM], [GCM], "_Gcm"),
    ],
)
def test_both_ends_use_the_best_that_both_have(
    meet: Meet, here: list[str], there: list[str], wanted: str
) -> None:
    caller, listener = meet(here, there)
    for peer in (caller, listener):
        assert type(peer.seals.sending).__name__ == wanted
    assert caller.seals.sending._key == listener.seals.receiving._key
    assert caller.seals.receiving._key == listener.seals.sending._key


def test_ends_with_nothing_in_common_say_so(meet: Meet) -> None:
    caller, listener = meet([GCM], [BLAKE2B])
    for error in (caller, listener):
        assert isinstance(error, HandshakeError)
        assert names.ENCRYPT_FRAMES in str(error)


def test_a_unix_socket_is_not_sealed() -> None:
    here, there = socket.socketpair()
    found: list[handshake.Peer] = []
    with here, there:
        thread = threading.Thread(
            target=lambda: found.append(handshake.answer(there, "token", "listener"))
        )
        thread.start()
        found.append(handshake.call(here, "token", "caller"))
        thread.join()
    assert [peer.seals for peer in found] == [None, None]


@pytest.fixture
def uncached() -> Iterator[None]:
    for one in (seal._lacking, seal._say_price):
        one.cache_clear()
    yield
    for one in (seal._lacking, seal._say_price):
        one.cache_clear()


@pytest.mark.usefixtures("uncached")
@pytest.mark.parametrize("lacking", ["package", "instructions"])
def test_without_aes_frames_are_hashed_and_the_price_is_told_once(
    meet: Meet,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lacking: str,
) -> None:
    original = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return original(name, *rest, **more)

    if lacking == "package":
        monkeypatch.setattr(builtins, "__import__", refuse)
    else:
        monkeypatch.setattr(seal, "_processor_flags", lambda: {"sse2"})
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        caller, listener = meet()
        assert type(caller.seals.sending) is type(listener.seals.sending) is seal._Blake2b
    [line] = [record.getMessage() for record in caplog.records]
    assert "CPU-seconds per GB" in line
    assert ("cryptography" if lacking == "package" else "AES instructions") in line
    monkeypatch.setenv(names.ENCRYPT_FRAMES, "1")
    with pytest.raises(HandshakeError, match=names.ENCRYPT_FRAMES):
        seal.offered()
