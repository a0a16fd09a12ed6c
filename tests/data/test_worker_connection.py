"""What is said of a connection that ends, and what waits for what is sent on it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from penstock.data.errors import FrameError, NotPortableError
from penstock.data.queue import receiving
from penstock.data.queue.batch_queue import BatchQueue, QueueOptions
from penstock.data.queue.makers import Makers
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.transport import frame, messages
from penstock.data.transport.batch_codec import Packer
from penstock.data.transport.blocks import SharedPool
from tests.patience import patient


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


class Gates:
    """Has `frame.send` wait, for each batch to be finished, until a test lets it go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[Any] = []
        self.under_way: SimpleQueue[int] = SimpleQueue()
        self.gates = {step: threading.Event() for step in range(3)}
        monkeypatch.setattr(frame, "send", self.send)

    def send(self, sock: Any, kind: int, header: Any, *_: Any, **__: Any) -> None:
        if kind == messages.FINISH:
            step = header[3][0]
            self.under_way.put(step)
            assert self.gates[step].wait(patient(20))
            self.sent.append(step)


@contextmanager
def local_worker() -> Iterator[WorkerConnection]:
    here, there = socket.socketpair()
    link = WorkerConnection(here, "local worker 7", SharedPool(), local=b"key")
    yield link
    link.close()
    there.close()


def test_no_request_waits_behind_any_of_several_batches_to_be_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gates, packed = Gates(monkeypatch), Packer().pack([1])
    with local_worker() as link:

        def finish(step: int) -> threading.Thread:
            link.large.begin()
            thread = threading.Thread(target=link.finish, args=(1, b"key", 0, [step], packed))
            thread.start()
            return thread

        first = finish(0)
        assert gates.under_way.get(timeout=patient(20)) == 0
        assert not link.usable(b"key")
        second = finish(1)
        gates.gates[0].set()
        first.join(patient(20))
        assert gates.under_way.get(timeout=patient(20)) == 1
        assert not link.usable(b"key"), "the second is being sent"
        gates.gates[1].set()
        second.join(patient(20))
        assert link.usable(b"key")
        assert gates.sent == [0, 1]


def test_a_local_worker_has_one_batch_to_finish_at_a_time_and_is_asked_again_afterwards() -> None:
    makers = Makers()
    queue = BatchQueue(makers.lock, makers.counts, 1, QueueOptions(key=b"key", seed=1))
    queue.tails_nearby = True
    makers.queues[1] = queue
    window: Any = queue.window
    for step in range(3):
        window.feed([step])
    window.end()
    window.ahead = 3
    begun = {step: window.ask("data worker", 0.0) for step in range(2)}
    assert set(begun) == {0, 1}
    with local_worker() as link, remote_worker() as remote:
        makers.links[link.name] = link
        with makers.lock:
            order = makers.pass_on(queue, remote, 0)
            assert order is not None
            assert makers.pass_on(queue, remote, 1) is None, "it has not been sent the other yet"
            assert not link.usable(b"key")
        order.link.finish(1, b"key", 1, order.asked, Packer().pack([1]))
        assert queue.passed_on == {0}
        with makers.lock:
            assert window.given_back(link.name, 0)
            makers.request(queue)
        assert queue.passed_on == set(), "whoever makes it now makes all of it"
        assert window.unmade_by(link.name) > 0


@contextmanager
def remote_worker() -> Iterator[WorkerConnection]:
    here, there = socket.socketpair()
    link = WorkerConnection(here, "data worker", SharedPool())
    yield link
    link.close()
    there.close()


def test_what_cannot_be_packed_again_is_for_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise NotPortableError("no")

    begun = {"penstock: samples in the middle of their way": "", "samples": [1]}
    assert receiving._packed_again(begun) is not None
    monkeypatch.setattr(Packer, "pack", refuse)
    assert receiving._packed_again(begun) is None
