"""Peers that are wrong, rude or of another version: a clear error, on the right side."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from penstock.base.listener import split_address
from penstock.data import Loader
from penstock.data.consuming import consumer as consumer_module
from penstock.data.consuming.consumer import Consumer
from penstock.data.errors import NotPortableError, SignatureError
from penstock.data.pipeline import Pipeline, open_pipeline, pack_pipeline
from penstock.data.serving.consumer_connection import ConsumerConnection
from penstock.data.transport import frame, handshake, messages
from tests.data import planes
from tests.data.planes import TOKEN, Plain, eventually, same, thread_worker


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    with planes.consumer() as made:
        yield made


def join(consumer: Consumer) -> ConsumerConnection:
    """A peer that shakes hands properly, for now."""
    host, _, port = consumer.address.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    peer = handshake.call(sock, TOKEN, "odd")
    frame.set_timeouts(sock, 5)
    return ConsumerConnection("odd", sock, seals=peer.seals)


def epoch(consumer: Consumer) -> list[Any]:
    got = list(Loader(Plain(400), 4, seed=1, consumer=consumer))
    assert same(got, list(Loader(Plain(400), 4, seed=1)))
    return got


def test_a_data_worker_with_a_wrong_token_is_told_and_so_is_the_program(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with thread_worker(consumer, token="another job's"):
        eventually(lambda: len(caplog.records) >= 2)
    epoch(consumer)
    lines = " ".join(record.getMessage() for record in caplog.records)
    assert "cannot serve" in lines
    assert "does not hold this job's token" in lines
    assert "was refused: the other end refused" in lines


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n" * 3, b"", b"\0" * 1000])
def test_garbage_at_the_door_is_refused(
    consumer: Consumer, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    host, _, port = consumer.address.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(data)
        sock.settimeout(5)
        with contextlib.suppress(OSError):  # refused is refused, with or without a word
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1000):
                pass
    eventually(lambda: "was refused" in caplog.text)
    epoch(consumer)


LONG = msgpack.packb([5, "<f8", [99], None])
COST = [0.1, 0.1, 0.0, 0]
LIES = {
    "garbage": lambda line: line.sock.sendall(b"x" * 100),
    "unknown kind": lambda line: line.send(99, []),
    "wrong fields": lambda line: line.send(messages.BATCH, [1, 2]),
    "unasked batch": lambda line: line.send(messages.BATCH, [1, 0, b"\x92\x00\x01", 0, -1, COST]),
    "foreign block": lambda line: line.send(messages.BATCH, [1, 0, b"\x92\x00\x01", 9, 3, COST]),
    "no arrays": lambda line: line.send(messages.BATCH, [1, 0, LONG, 0, -1, COST]),
    "odd structure": lambda line: line.send(messages.BATCH, [1, 0, "?", 0, -1, COST]),
    "odd cost": lambda line: line.send(messages.BATCH, [1, 0, b"\x92\x00\x01", 0, -1, 0.1]),
    "endless cost": lambda line: line.send(
        messages.BATCH, [1, 0, b"\x92\x00\x01", 0, -1, [math.inf, 0.1, 0.0, 0]]
    ),
    "odd answer": lambda line: line.send(messages.FAILED, [1, "x", None, 5, {}]),
    "odd types": lambda line: line.send(messages.DROPPED, [[], {}, "b"]),
    "wants odd memory": lambda line: line.send(messages.WANT, ["much"]),
    "hangs up": lambda line: line.sock.close(),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_data_worker_that_lies_is_done_without(consumer: Consumer, lie: str) -> None:
    loader = Loader(Plain(400), 4, seed=1, consumer=consumer)
    batches = iter(loader)
    got = [next(batches)]
    line = join(consumer)
    eventually(lambda: consumer.workers)
    try:
        LIES[lie](line)
        got += batches
    finally:
        line.sock.close()
    assert same(got, list(Loader(Plain(400), 4, seed=1)))
    eventually(lambda: not consumer.workers)


def test_a_data_worker_that_stalls_within_a_batch_is_done_without(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.data.consuming.consumer.SILENCE_SECONDS", 0.5)
    loader = Loader(Plain(40), 4, seed=1, consumer=consumer)
    batches = iter(loader)
    line = join(consumer)
    eventually(lambda: consumer.workers)
    assert line.seals is not None
    reader = frame.Reader(line.sock, line.seals.receiving)
    pipeline = reader.receive(lambda size: memoryview(bytearray(size)))
    line.send(messages.OPENED, [pipeline.header[0], "", ""])
    asked = reader.receive(lambda size: memoryview(bytearray(size)))
    assert asked.kind == messages.MAKE
    line.sock.sendall(b"PNS1" + bytes(5))
    began = time.monotonic()
    got = list(batches)
    assert time.monotonic() - began < 10
    line.sock.close()
    assert same(got, list(Loader(Plain(40), 4, seed=1)))


def test_a_pipeline_that_another_signed_is_not_opened() -> None:
    packed = pack_pipeline(Pipeline([1], len), "another token")
    with pytest.raises(SignatureError, match="not of this job's token"):
        open_pipeline(packed.blob, packed.signature, TOKEN)
    mine = pack_pipeline(Pipeline([1], len), TOKEN)
    with pytest.raises(SignatureError):
        open_pipeline(mine.blob[:-1] + b"?", mine.signature, TOKEN)
    assert open_pipeline(mine.blob, mine.signature, TOKEN).dataset == [1]


def fail() -> None:
    raise ModuleNotFoundError("No module named 'mine'")


def test_a_pipeline_that_cannot_be_opened_there_is_made_here(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    with thread_worker(consumer):
        eventually(lambda: consumer.workers)
        loader = Loader(Plain(400), 4, seed=1, consumer=consumer, stages=[Stays()])
        assert len(list(loader)) == 100
        eventually(lambda: "cannot open the pipeline" in caplog.text)
    assert "No module named 'mine'" in caplog.text


class Stays:
    def __call__(self, sample: Any) -> Any:
        return sample

    def __reduce__(self) -> Any:
        return (fail, ())


def test_a_dataset_that_is_too_large_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.data.pipeline.MAX_PIPELINE_BYTES", 100)
    with pytest.raises(NotPortableError, match="open its files by itself"):
        pack_pipeline(Pipeline(bytes(200), len), TOKEN)


def test_a_thread_that_is_refused_ends_no_data_plane(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = threading.Event()
    start = consumer_module.start_thread

    def scarce(*work: Any) -> None:
        if not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(*work)

    monkeypatch.setattr(consumer_module, "start_thread", scarce)
    with socket.create_connection(split_address(consumer.address), 10) as sock:
        assert sock.recv(1) == b""
    assert "can't start new thread" in caplog.text
    with thread_worker(consumer, tcp=True):
        eventually(lambda: len(consumer.workers) == 1)


def test_nobody_listens_to_the_world_without_a_token() -> None:
    with pytest.raises(Exception, match="without a token"):
        Consumer(token="", host="0.0.0.0")
