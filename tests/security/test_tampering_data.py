"""Whoever sits between data worker and training can end their connection, and no more than that."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.crds import environment as names
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer
from penstock.data.transport import messages
from penstock.data.transport.handshake import CHALLENGE, HELLO, PROOF
from tests.data import planes
from tests.data.planes import TOKEN, WORKER, Noise, eventually, same
from tests.security.relay import TAMPERING, Change, Once, Relay, Swap, relaying

BATCHES = 60
STALL_SECONDS = 3.0
"""What a frame whose rest does not come is waited for in these tests."""


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    monkeypatch.setattr("penstock.data.consuming.consumer.SILENCE_SECONDS", STALL_SECONDS)
    with planes.consumer(share_memory=False) as made:
        yield made


@contextmanager
def worker_behind(relay: Relay) -> Iterator[subprocess.Popen[bytes]]:
    """A data worker's process that reaches the training through a relay."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, TOKEN, relay.address, ""])
    try:
        yield process
    finally:
        planes.end(process)


def epoch(consumer: Consumer, sample_seconds: float = 0.002) -> list[Any]:
    """All batches of an epoch, of which a data worker makes what it can."""
    data = Noise(BATCHES * 4, sample_seconds)
    eventually(lambda: consumer.workers, 40)
    return list(Loader(data, 4, seed=1, consumer=consumer))


@pytest.fixture(scope="module")
def wanted() -> list[Any]:
    return list(Loader(Noise(BATCHES * 4), 4, seed=1))


def tampered(consumer: Consumer, change: Any) -> list[Any]:
    """The batches of an epoch while somebody on the path does this."""
    with relaying(consumer.address, change) as relay, worker_behind(relay):
        got = epoch(consumer)
        assert change.done.is_set(), "nothing was tampered with"
    return got


@pytest.mark.parametrize("name", TAMPERING)
def test_no_batch_that_was_tampered_with_is_delivered(
    consumer: Consumer, wanted: list[Any], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.INFO)
    got = tampered(consumer, Once(messages.BATCH, TAMPERING[name], after=2))
    assert same(got, wanted)
    eventually(lambda: any(record.levelno >= logging.WARNING for record in caplog.records))


def test_batches_that_change_places_are_not_delivered(
    consumer: Consumer, wanted: list[Any]
) -> None:
    assert same(tampered(consumer, Swap(messages.BATCH)), wanted)


@pytest.mark.parametrize("name", ["middle of the header", "header anew", "repeated"])
def test_a_request_that_was_tampered_with_is_not_answered(
    consumer: Consumer, wanted: list[Any], name: str
) -> None:
    assert same(tampered(consumer, Once(messages.MAKE, TAMPERING[name], after=2)), wanted)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(HELLO, "last byte of the header"), (CHALLENGE, "middle of the header"), (PROOF, "repeated")],
)
def test_a_handshake_that_was_tampered_with_comes_to_nothing(
    consumer: Consumer, wanted: list[Any], caplog: pytest.LogCaptureFixture, kind: int, name: str
) -> None:
    change = Once(kind, TAMPERING[name])
    with relaying(consumer.address, change) as relay, worker_behind(relay):
        ends = ("was refused", "message 0", "is lost")
        eventually(lambda: any(one in caplog.text for one in ends), 40)
    assert same(list(Loader(Noise(BATCHES * 4), 4, seed=1, consumer=consumer)), wanted)


def test_nobody_can_have_the_two_agree_on_a_weaker_seal(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    def weaker(one: Any) -> bytes:
        assert b"aes-256-gmac" in one.header
        header = one.header.replace(b"aes-256-gmac", b"aes-256-xxxx")
        return one.prelude + header

    change = Once(HELLO, weaker)
    with relaying(consumer.address, change) as relay, worker_behind(relay):
        eventually(lambda: "was refused" in caplog.text, 40)
    assert "the other end refused" in caplog.text
    assert not consumer.workers


def test_what_goes_by_is_hidden_on_demand(
    consumer: Consumer, wanted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pixels of a batch are in clear otherwise: this is what the option is for."""
    some = wanted[3]["numpy"][0].tobytes()
    seen: dict[str, bytearray] = {}
    for hide in ("", "1"):
        monkeypatch.setenv(names.ENCRYPT_FRAMES, hide)
        change: Change = bytes
        with relaying(consumer.address, change) as relay, worker_behind(relay):
            assert same(epoch(consumer, 0.01), wanted)
            seen[hide] = relay.seen
        eventually(lambda: not consumer.workers)
    assert TOKEN.encode() not in seen[""] + seen["1"]
    assert any(batch["numpy"][0].tobytes() in seen[""] for batch in wanted)
    assert not any(batch["numpy"][0].tobytes() in seen["1"] for batch in wanted)
    assert some not in seen["1"]
