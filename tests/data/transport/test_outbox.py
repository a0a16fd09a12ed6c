"""Messages to an end that takes them, takes them slowly, or does not take them at all."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data.errors import FrameError, TooLargeError
from penstock.data.transport import frame, outbox
from penstock.data.transport.outbox import MOST_WAITING, Outbox
from penstock.data.transport.seal import Seal, SealKind, make_seals
from tests.data.planes import eventually
from tests.patience import patient

LARGE = 4 << 20


@dataclass
class Ends:
    """A connection: what one end sends, and what the other receives of it."""

    here: socket.socket
    there: socket.socket
    seals: tuple[Seal | None, Seal | None] = (None, None)

    def outbox(self, **options: bool) -> Outbox:
        return Outbox(self.here, self.seals[0], **options)

    def reader(self) -> frame.Reader:
        return frame.Reader(self.there, self.seals[1])


def seals(kind: SealKind | None) -> tuple[Seal | None, Seal | None]:
    if kind is None:
        return None, None
    one, other = (make_seals(kind, "token", b"said", caller=caller) for caller in (True, False))
    return one.sending, other.receiving


@pytest.fixture(params=[None, SealKind.AES_GMAC, SealKind.AES_GCM])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    listener = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(listener.getsockname())
    there = listener.accept()[0]
    for sock in (here, there):
        frame.set_timeouts(sock, patient(5))
    with listener, here, there:
        yield Ends(here, there, seals(request.param))


def room(size: int) -> memoryview:
    return memoryview(bytearray(size))


def large(number: int) -> np.ndarray[Any, Any]:
    return np.full(LARGE // 8, number, np.int64)


def flood(sending: Outbox) -> None:
    for _ in range(100):
        sending.send(6, [], [large(1)[:1000]])


def test_what_an_end_does_not_take_is_kept_as_it_was_and_arrives_in_order(ends: Ends) -> None:
    sending, array = ends.outbox(), large(0)
    begun = time.monotonic()
    number = 0
    while not sending.behind:
        array[:] = number
        sending.send(5, [number], [array[:7], array[7:]])
        number += 1
    for _ in range(3):
        sending.send(6, ["small"])
    array[:] = -1  # the memory is used again
    spent = time.monotonic() - begun
    assert spent < patient(5), "it waited for whoever does not read"
    reader = ends.reader()
    for expected in range(number):
        came = reader.receive(room)
        assert came.header == [expected]
        assert (np.frombuffer(came.body, np.int64) == expected).all()
    assert [reader.receive(room).header for _ in range(3)] == [["small"]] * 3
    eventually(lambda: not sending.behind)
    sending.send(7, ["at once"])
    assert reader.receive(room).header == ["at once"]


def test_whoever_waits_for_room_is_told(ends: Ends) -> None:
    sending, told = ends.outbox(), threading.Event()
    sending.on_room = told.set
    for number in range(MOST_WAITING + 3):
        sending.send(5, [number], [large(number)])
    reader = ends.reader()
    for _ in range(MOST_WAITING + 3):
        reader.receive(room)
    assert told.wait(patient(5))
    sending.finish(time.monotonic() + patient(5))
    assert sending.silent_seconds > 0


def test_an_end_that_takes_nothing_is_lost_after_the_time_out(ends: Ends) -> None:
    frame.set_send_timeout(ends.here, 0.3)
    sending = ends.outbox()

    def send() -> bool:
        try:
            sending.send(5, [], [large(1)])
        except FrameError:
            return True
        return False

    eventually(send)
    assert ends.here.recv(1) == b"", "whoever receives from it is told as well"
    sending.finish(time.monotonic())
    sending.close()


def test_an_end_that_goes_away_is_an_error(ends: Ends) -> None:
    sending = ends.outbox()
    ends.there.close()
    with pytest.raises(FrameError, match="while a message was sent"):
        flood(sending)


def test_small_messages_that_nobody_takes_are_bounded(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_MESSAGES", 9)
    sending = ends.outbox()
    while not sending.behind:
        sending.send(5, [], [large(1)])
    with pytest.raises(FrameError, match="has not taken 9 messages"):
        flood(sending)


def test_who_is_alone_with_the_other_end_waits_for_it(ends: Ends) -> None:
    sending, came = ends.outbox(alone=True), []
    reader = ends.reader()
    taking = threading.Thread(target=lambda: came.append(reader.receive(room)))
    timer = threading.Timer(3 * outbox.LONGEST_SECONDS, taking.start)
    timer.start()
    sending.send(5, ["large"], [np.zeros(64 << 20, np.uint8)])
    assert sending.silent_seconds >= 0
    taking.join(patient(10))
    assert came[0].header == ["large"]


def test_what_is_too_large_breaks_nothing(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "MAX_BODY_BYTES", 1000)
    sending = ends.outbox()
    with pytest.raises(TooLargeError):
        sending.send(5, [], [large(1)])
    sending.send(5, ["small"])
    assert ends.reader().receive(room).header == ["small"]


def test_an_open_file_goes_at_once_or_not_at_all() -> None:
    here, there = socket.socketpair()
    frame.set_timeouts(here, patient(5))
    with here, there, Path(os.devnull).open() as file:
        sending = Outbox(here)
        assert sending.send_descriptor(5, ["file"], file.fileno())
        found = frame.Reader(there).receive(room)
        assert found.header == ["file"]
        os.close(found.descriptors[0])
        while not sending.behind:
            sending.send(6, ["x" * 1000])
        assert not sending.send_descriptor(5, ["file"], file.fileno())
