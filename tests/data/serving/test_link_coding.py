"""When a data worker codes its batches: only where the link is slower than coding them."""

from __future__ import annotations

import socket
from collections.abc import Callable

import numpy as np
import pytest

from penstock.data import Loader
from penstock.data.serving import link_coding
from penstock.data.serving.link_coding import (
    FORGOTTEN_AFTER,
    LAST_PAUSE,
    SEEN_BYTES,
    LinkCoding,
)
from penstock.data.transport.batch_codec import Packed, pack
from penstock.data.transport.dictionary_coding import Coded
from penstock.data.transport.link_use import LinkUse, link_use
from tests.data.planes import Plain, consumer, eventually, same, thread_worker

LEVELS = pack(np.random.default_rng(0).integers(0, 9, (4, 3, 64, 64)).astype(np.float32))
NOISE = pack(np.random.default_rng(0).normal(size=(4, 3, 64, 64)))


MADE = 0.2e-9 * LEVELS.size


class Link:
    """A connection with a clock of its own; coding takes 1.5 ns a byte."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds_a_byte: float) -> None:
        self.now = 0.0
        self.seconds_a_byte = seconds_a_byte
        self.encode_seconds = 1.5e-9
        self.tried = 0
        self.use: LinkUse | None = LinkUse(0.0, 0)
        self.coding = LinkCoding(lambda: self.use, lambda: self.now)
        encode: Callable[[Packed], Coded | None] = self.coding._encoder.encode

        def timed(packed: Packed) -> Coded | None:
            self.tried += 1
            self.now += self.encode_seconds * packed.size
            return encode(packed)

        monkeypatch.setattr(self.coding._encoder, "encode", timed)

    def send(self, packed: Packed, count: int, made: float = MADE) -> int:
        """So many batches; says how many of them were coded."""
        coded = 0
        for _ in range(count):
            found = self.coding.code(packed, made)
            coded += found is not None
            size = packed.size if found is None else found.size
            if self.use is not None:
                busy, arrived = self.use
                self.use = LinkUse(busy + self.seconds_a_byte * size, arrived + size)
        return coded


SEEN = SEEN_BYTES // LEVELS.size + 1


def test_on_a_link_that_is_fast_enough_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, 0.8e-9)
    link.send(LEVELS, 3 * SEEN)
    assert link.tried == 0


def test_a_slow_link_is_judged_and_then_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, 8e-9)
    assert link.send(LEVELS, SEEN) == 0
    assert link.send(LEVELS, 200) == 200


def test_where_making_is_slower_than_the_link_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Link(monkeypatch, 8e-9)
    link.send(LEVELS, 3 * SEEN, made=12e-9 * LEVELS.size)
    assert link.tried == 0


def test_a_link_that_becomes_fast_gets_batches_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, 8e-9)
    link.send(LEVELS, 2 * SEEN)
    link.seconds_a_byte = 0.8e-9
    link.send(LEVELS, 50 * SEEN)
    assert link.send(LEVELS, 50) == 0


def test_coding_that_takes_longer_than_it_saves_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Link(monkeypatch, 4e-9)
    link.encode_seconds = 5e-9
    link.send(LEVELS, 3 * SEEN)
    assert link.tried == 2, "the first time does not count"


def test_what_the_first_try_takes_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, 8e-9)
    link.encode_seconds = 50e-9
    link.send(LEVELS, SEEN)
    assert link.send(LEVELS, 1) == 1
    link.encode_seconds = 1.5e-9
    assert link.send(LEVELS, 200) == 200


def test_a_coding_that_was_given_up_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, 4e-9)
    link.encode_seconds = 5e-9
    link.send(LEVELS, SEEN + 10)
    link.encode_seconds = 1e-9
    assert link.send(LEVELS, FORGOTTEN_AFTER - 20) == 0
    link.send(LEVELS, 20)
    assert link.send(LEVELS, 100) == 100


def test_what_cannot_be_coded_is_tried_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, 8e-9)
    link.send(NOISE, SEEN + 20_000)
    assert 8 <= link.tried <= 14
    link.send(LEVELS, LAST_PAUSE + 1)
    assert link.send(LEVELS, 10) == 10, "and coded again when it can be"


def test_where_the_kernel_says_nothing_batches_go_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Link(monkeypatch, 8e-9)
    link.use = None
    assert link.send(LEVELS, 3 * SEEN) == 0


def test_the_kernel_tells_what_a_connection_has_carried() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as sock:
        there, _ = server.accept()
        with there:
            sock.sendall(bytes(100_000))
            got = 0
            while got < 100_000:
                got += len(there.recv(1 << 16))
            eventually(lambda: (link_use(sock) or LinkUse(0, 0)).bytes_arrived >= 100_000)
            found = link_use(sock)
    assert found is not None
    assert 0 <= found.busy_seconds < 60
    near, far = socket.socketpair()
    with near, far:
        assert link_use(near) is None


def test_batches_that_were_coded_are_those_that_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_coding, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(link_coding, "SEEN_BYTES", 1)
    monkeypatch.setattr(link_coding, "GAIN", 1e9)
    monkeypatch.setattr(link_coding, "_smoothed", lambda before, now: now or 1e-9)
    data, alone = Plain(60), Loader(Plain(60), batch_size=10)
    with consumer(share_memory=False) as mine, thread_worker(mine, tcp=True):
        eventually(lambda: mine.workers)
        served = Loader(data, batch_size=10, consumer=mine)

        def coded_came() -> bool:
            wanted = list(alone)
            assert same(list(served), wanted)
            each = sum(np.asarray(value).nbytes for value in wanted[0].values())
            counts = mine.counts
            return counts.arrived > 12 and counts.received_bytes < 0.5 * counts.arrived * each

        eventually(coded_came)
