"""A server that runs out of threads, or cannot go on, says so and is never half alive."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock.data.errors import FrameError
from penstock.parameter_server.connection import Connection, UnavailableError
from penstock.parameter_server.server.process import FAILED, ParameterServer
from penstock.parameter_server.server.settings import ServerSettings
from penstock.parameter_server.wire import BEGIN, Unavailable


@pytest.fixture
def server() -> Iterator[ParameterServer]:
    found = ParameterServer(ServerSettings(trainer="127.0.0.1:9", token="token"))
    found.start()
    yield found
    found.close()


def test_without_a_thread_left_one_caller_is_refused_and_the_next_one_served(
    server: ParameterServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "penstock-line":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(FrameError):
            Connection.connect(server.address, "token", "test")
    assert "can't start new thread" in caplog.text
    connection = Connection.connect(server.address, "token", "test")
    with pytest.raises(UnavailableError) as refused:
        connection.ask(BEGIN, [1, None, None])
    assert refused.value.reason is Unavailable.LAYOUT
    connection.close()


def test_a_server_that_cannot_report_any_more_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ParameterServer(ServerSettings(trainer="127.0.0.1:9", token="token"))

    def broken() -> None:
        raise RuntimeError("such as no memory for a thread")

    monkeypatch.setattr(server, "_report", broken)
    server.start()
    assert server.wait(10) == FAILED
    server.close()
