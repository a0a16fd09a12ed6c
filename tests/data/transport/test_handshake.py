"""Both ends know that the other belongs to the job, and both are told why if not."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.data.errors import DataError, FrameError, HandshakeError
from penstock.data.transport import frame, handshake


def meet(
    caller: Callable[[socket.socket], Any], listener: Callable[[socket.socket], Any]
) -> tuple[Any, Any]:
    """What each end returns or raises."""
    here, there = socket.socketpair()
    results: dict[str, Any] = {}

    def run(side: str, act: Callable[[socket.socket], Any], sock: socket.socket) -> None:
        try:
            results[side] = act(sock)
        except DataError as error:
            results[side] = error
        finally:
            sock.shutdown(socket.SHUT_WR) if side == "caller" else sock.close()

    threads = [
        threading.Thread(target=run, args=("caller", caller, here)),
        threading.Thread(target=run, args=("listener", listener, there)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    here.close()
    return results["caller"], results["listener"]


def test_the_same_token_opens() -> None:
    caller, listener = meet(
        lambda sock: handshake.call(sock, "secret", "worker"),
        lambda sock: handshake.answer(sock, "secret", "trainer"),
    )
    assert (caller.name, listener.name) == ("trainer", "worker")


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ({}, (0, {"cpu"})),
        ({"stage": 1, "devices": ("cpu", "cuda")}, (1, {"cpu", "cuda"})),
        ({"stage": 1, "devices": ("cpu", "abacus")}, (1, {"cpu"})),
        ({"stage": 99, "devices": ("cpu",)}, (0, {"cpu"})),
    ],
)
def test_a_data_worker_says_of_which_stage_it_is(said: Any, heard: Any) -> None:
    _, listener = meet(
        lambda sock: handshake.call(sock, "secret", "worker", **said),
        lambda sock: handshake.answer(sock, "secret", "trainer"),
    )
    assert (listener.stage, set(listener.devices)) == heard


def test_a_wrong_token_is_refused_on_both_sides() -> None:
    caller, listener = meet(
        lambda sock: handshake.call(sock, "wrong", "worker"),
        lambda sock: handshake.answer(sock, "secret", "trainer"),
    )
    assert isinstance(caller, HandshakeError)
    assert "token" in str(caller)
    assert isinstance(listener, HandshakeError)
    assert "token" in str(listener)


def test_a_caller_without_the_token_that_goes_on_regardless_is_refused() -> None:
    def impostor(sock: socket.socket) -> Any:
        frame.set_timeouts(sock, 5)
        hello = [handshake.PROTOCOL_VERSION, handshake.PYTHON, "1", "x", bytes(16), {}]
        frame.send(sock, handshake.HELLO, hello)
        *_, proof = frame.receive(sock, lambda _: memoryview(b"")).header
        frame.send(sock, handshake.PROOF, proof)  # the other's own proof, sent back
        return frame.receive(sock, lambda _: memoryview(b"")).header

    said, listener = meet(impostor, lambda sock: handshake.answer(sock, "secret", "trainer"))
    assert "token" in said
    assert isinstance(listener, HandshakeError)


def test_the_token_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    original = frame.send_all

    def listen(sock: socket.socket, parts: list[Any], total: int) -> None:
        sent.extend(bytes(part) for part in parts)
        original(sock, parts, total)

    monkeypatch.setattr(frame, "send_all", listen)
    meet(
        lambda sock: handshake.call(sock, "the-secret-token", "worker"),
        lambda sock: handshake.answer(sock, "the-secret-token", "trainer"),
    )
    assert sent
    assert b"the-secret-token" not in b"".join(sent)


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [("PROTOCOL_VERSION", 99, "protocol version"), ("PYTHON", "2.7", "Python 2.7")],
)
def test_versions_that_differ_are_named_on_both_sides(
    attribute: str, value: object, said: str
) -> None:
    def other(sock: socket.socket) -> Any:
        frame.set_timeouts(sock, 5)
        hello = {"PROTOCOL_VERSION": handshake.PROTOCOL_VERSION, "PYTHON": handshake.PYTHON}
        hello[attribute] = value
        header = [*hello.values(), "9.9", "worker", bytes(16), False]
        frame.send(sock, handshake.HELLO, header)
        return frame.receive(sock, lambda _: memoryview(b"")).header

    told, listener = meet(other, lambda sock: handshake.answer(sock, "secret", "trainer"))
    assert said in told
    assert said in str(listener)


@pytest.mark.parametrize(
    "bad",
    [
        lambda sock: sock.sendall(b"GET / HTTP/1.0\r\n\r\n" * 4),
        lambda sock: frame.send(sock, 77, []),
        lambda sock: frame.send(sock, handshake.HELLO, ["too", "short"]),
        lambda sock: frame.send(sock, handshake.HELLO, [], [b"a body"]),
    ],
)
def test_whatever_else_is_said_is_an_error(bad: Callable[[socket.socket], Any]) -> None:
    _, listener = meet(bad, lambda sock: handshake.answer(sock, "secret", "trainer"))
    assert isinstance(listener, HandshakeError | FrameError)


def test_whoever_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.2)
    here, there = socket.socketpair()
    with here, there, pytest.raises(HandshakeError, match="nothing in time"):
        handshake.answer(there, "secret", "trainer")


def test_a_stranger_gets_no_memory_for_a_long_header() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(struct.pack("<4sBxxxIQ", frame.MAGIC, handshake.HELLO, 1 << 20, 0))
        with pytest.raises(FrameError, match="claims 1048576"):
            handshake.answer(there, "token", "listener")
