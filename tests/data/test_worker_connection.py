"""What is said of a connection that ends."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from penstock.data.errors import FrameError
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.transport import frame
from penstock.data.transport.blocks import SharedPool


@pytest.mark.parametrize("ended_here", [True, False])
def test_an_end_in_the_middle_of_a_message_is_said_unless_it_was_ended_here(
    ended_here: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = socket.socketpair()
    link = WorkerConnection(here, "local worker 7", SharedPool(), local=b"key")

    def send(*_: Any, **__: Any) -> None:
        if ended_here:  # the program has left the epoch, in another thread
            link.end()
        raise FrameError("the other end went away")

    monkeypatch.setattr(frame, "send", send)
    link.drop(1)
    assert ("local worker 7: the other end went away" in caplog.text) != ended_here
    assert link.dead
    link.close()
    there.close()
