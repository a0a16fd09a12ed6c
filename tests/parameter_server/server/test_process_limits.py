"""A server that runs out of threads or memory, or cannot go on, says so and is never half alive."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from benchmarks.parameters.orders import TOKEN, Trainer, random_model
from penstock.data.errors import FrameError
from penstock.data.spare_memory import SpareMemory
from penstock.parameter_server.connection import Connection, UnavailableError
from penstock.parameter_server.server.process import FAILED, ParameterServer
from penstock.parameter_server.server.settings import ServerSettings
from penstock.parameter_server.spec import DenseSpec, ModelSpec, OptimizerKind, OptimizerSpec
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


def test_a_trainer_of_the_release_before_hears_that_there_is_no_memory_for_a_copy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the servers train on under it; one of this release is told that it may save in place."""
    monkeypatch.setattr(SpareMemory, "take", lambda *_: False)
    spec = ModelSpec(
        dense=(DenseSpec(name="w", shape=(4, 3)),),
        optimizer=OptimizerSpec(kind=OptimizerKind.SGD, learning_rate=0.5),
        partitions=2,
    )
    with Trainer() as trainer:
        trainer.unknown = frozenset({"uncopied"})
        server = ParameterServer(ServerSettings(trainer=trainer.address, token=TOKEN))
        server.start()
        address = trainer.await_server(str(server.id))
        layout = trainer.fill(1, [address], random_model(spec))
        for snapshot in (3, 4):
            trainer.freeze(layout, snapshot=snapshot)
            [report] = trainer.await_reports([address], lambda report: bool(report.trouble))
            assert report.trouble.startswith("no memory for a copy of its parameters")
            assert report.uncopied is None
            trainer.serve(layout)
        trainer.await_reports([address], lambda report: not report.trouble)
        assert caplog.text.count("is of an older release: no checkpoint is saved") == 1
        trainer.name, trainer.unknown = "newer", frozenset()
        trainer.serve(layout)
        trainer.freeze(layout, snapshot=5)
        trainer.await_reports([address], lambda report: report.uncopied == 5)
        server.close()
