"""A data worker asks for weights: what is wrong, short or late is never used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.data.errors import FrameError
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.transport import messages
from penstock.data.weight_bundle import Gathering, Weights
from penstock.data.weights import fetching
from penstock.data.weights.fetching import AskedParts, WeightsKeeper
from penstock.data.weights.node_folder import NodeFolder, WeightsError
from tests.data.planes import eventually

SIZE = 5 * messages.PART_BYTES // 2


def weights() -> Weights:
    gathering = Gathering()
    gathering.add(bytes(range(250)) * (SIZE // 250))
    found = gathering.weights()
    assert found is not None
    return found


def named(one: Weights) -> Weights:
    return Weights(one.digest, one.size)


class Training:
    """Answers what it is asked for, each answer as ``change`` gives it."""

    def __init__(self, own: Weights, change: Callable[[int, bytes], bytes | None]) -> None:
        self.own, self.change, self.asked = own, change, 0
        self.parts = AskedParts()

    def send(self, kind: int, header: Any) -> None:
        assert kind == messages.NEED
        digest, offset, size = header
        assert digest == self.own.digest
        self.asked += 1
        body = self.change(self.asked, b"".join(self.own.read(offset, size)))
        if body is not None:
            self.parts.put(digest, offset, "", memoryview(body))


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WeightsKeeper:
    monkeypatch.setattr(fetching, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(fetching, "SILENCE_SECONDS", 0.2)
    return WeightsKeeper(lambda: NodeFolder(tmp_path / "weights"))


def once(spoiled: Callable[[bytes], bytes | None]) -> Callable[[int, bytes], bytes | None]:
    return lambda number, body: spoiled(body) if number == 2 else body


@pytest.mark.parametrize(
    "change",
    [
        lambda number, body: body,
        once(lambda body: None),
        once(lambda body: body[:-1]),
        once(lambda body: body + b"x"),
        once(lambda body: b"x" + body[1:]),
    ],
)
def test_they_come_whole_and_right_or_are_asked_for_again(
    keeper: WeightsKeeper, change: Callable[[int, bytes], bytes | None]
) -> None:
    own = weights()
    training, wanted, again = Training(own, change), named(own), named(own)
    keeper.provide([wanted], training.send, training.parts, "program")
    eventually(lambda: wanted.there)
    assert bytes(wanted.piece(0, own.size)) == b"".join(own.read(0, own.size))
    asked = training.asked
    keeper.provide([again], training.send, training.parts, "program")
    assert again.there, "the process has them"
    assert training.asked == asked


def test_data_workers_of_one_node_ask_once(tmp_path: Path) -> None:
    own = weights()
    training = Training(own, lambda number, body: body)
    wanted = [named(own) for _ in range(4)]
    for one in wanted:
        keeper = WeightsKeeper(lambda: NodeFolder(tmp_path / "weights"))
        keeper.provide([one], training.send, training.parts, "program")
    eventually(lambda: all(one.there for one in wanted))
    assert training.asked == 3


def test_wrong_weights_never_come_and_are_said_once(
    keeper: WeightsKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    own = weights()
    training = Training(own, lambda number, body: bytes(len(body)))
    wanted = named(own)
    keeper.provide([wanted], training.send, training.parts, "program")
    eventually(lambda: training.asked > 9)
    training.parts.close()
    assert not wanted.there
    assert len(caplog.records) == 1
    assert "not what its digest says" in caplog.text


def test_a_connection_that_ends_ends_the_asking() -> None:
    parts = AskedParts()
    threading.Timer(0.05, parts.close).start()
    with pytest.raises(FrameError):
        parts.ask(lambda kind, header: None, b"d", 0, 10)


def test_what_is_said_to_be_gone_is_an_error() -> None:
    parts = AskedParts()

    def send(kind: int, header: Any) -> None:
        parts.put(b"other", 0, "", memoryview(b"nobody asked for this"))
        parts.put(b"d", 0, "gone", memoryview(b""))

    with pytest.raises(WeightsError, match="gone"):
        parts.ask(send, b"d", 0, 10)


@pytest.mark.parametrize("asked", [(0, 0), (0, messages.PART_BYTES + 1), (-1, 10)])
def test_no_more_is_sent_than_a_part(asked: tuple[int, int]) -> None:
    link: Any = object.__new__(WorkerConnection)
    with pytest.raises(FrameError, match="were asked for"):
        WorkerConnection.send_part(link, b"d", *asked)
