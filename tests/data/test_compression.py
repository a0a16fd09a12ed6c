"""What the job says of compression, between a training process and data workers over TCP."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from penstock.base.enums import Compression
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer
from penstock.data.protocol import InputOptions
from penstock.data.queue import worker_connection
from penstock.data.serving import connector, link_coding
from penstock.data.serving.link_coding import LinkCoding
from penstock.data.transport import frame, handshake, messages
from penstock.data.transport.batch_codec import pack
from penstock.data.transport.codings import Allowed, Coding
from penstock.data.transport.link_use import LinkUse
from tests.data import planes
from tests.data.planes import TOKEN, Plain, eventually, same, thread_worker

ZSTD = Allowed((Coding.ZSTD,), always=True)
BOTH = Allowed((Coding.DICTIONARY, Coding.ZSTD))


@pytest.fixture(autouse=True)
def no_link_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the loopback may be."""
    monkeypatch.setattr(link_coding, "SLOW_SECONDS", 1.0)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    with planes.consumer(share_memory=False) as made:
        yield made


def says(consumer: Consumer, compression: Compression) -> None:
    """As if the dispatcher had said so, before anybody joins."""
    consumer._options = InputOptions(compression=compression)


class Kinds:
    """Samples of every kind that batches carry, with as much to save as there is in pictures."""

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> dict[str, Any]:
        grey = np.arange(64 * 64, dtype=np.uint8).reshape(64, 64) ^ np.uint8(index)
        return {
            "bytes": grey,
            "floats": grey.astype(np.float32) / 255,
            "noise": np.random.default_rng(index).normal(size=(16, 16)),
            "wide": np.full((8, 8), index, np.complex128),
            "half": torch.full((9,), float(index), dtype=torch.bfloat16),
            "text": f"sample {index}",
            "none": None,
            "nested": [(index, float(index)), {"flags": np.array([True, False])}],
        }


def gather(samples: list[Any]) -> Any:
    arrays = {key: np.stack([one[key] for one in samples]) for key in ("bytes", "floats", "noise")}
    rest = [{key: one[key] for key in one if key not in arrays} for one in samples]
    return {**arrays, "rest": rest}


def epoch(consumer: Consumer | None) -> list[Any]:
    return list(Loader(Kinds(), 8, seed=1, collate=gather, consumer=consumer))


def bits(batches: list[Any]) -> list[Any]:
    """What batches are, to the last bit, types and order of dimensions included."""
    packed = [pack(batch) for batch in batches]
    return [(one.structure, [bytes(memoryview(part)) for part in one.parts]) for one in packed]


def received(consumer: Consumer) -> float:
    """Bytes that came for each byte of a batch, once data workers have brought enough."""
    alone = epoch(None)
    size = sum(pack(batch).size for batch in alone) / len(alone)

    def enough() -> bool:
        assert bits(epoch(consumer)) == bits(alone)
        return consumer.counts.arrived > 20

    eventually(enough)
    return consumer.counts.received_bytes / (size * consumer.counts.arrived)


def test_zstd_sends_every_batch_in_fewer_bytes_and_the_same_bits(consumer: Consumer) -> None:
    says(consumer, Compression.ZSTD)
    with thread_worker(consumer, tcp=True):
        eventually(lambda: consumer.workers)
        assert received(consumer) < 0.6


def test_auto_sends_batches_as_they_are_over_a_fast_link(consumer: Consumer) -> None:
    with thread_worker(consumer, tcp=True):
        eventually(lambda: consumer.workers)
        assert received(consumer) > 0.99


@pytest.mark.parametrize("compression", list(Compression))
def test_in_shared_memory_nothing_is_compressed(compression: Compression) -> None:
    with planes.consumer() as mine:
        says(mine, compression)
        with thread_worker(mine):
            eventually(lambda: mine.workers)
            assert received(mine) > 0.99


def test_none_switches_off_what_a_slow_link_would_have(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_coding, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(link_coding, "SEEN_BYTES", 1)
    monkeypatch.setattr(link_coding, "GAIN", 1e9)
    says(consumer, Compression.NONE)
    with thread_worker(consumer, tcp=True):
        eventually(lambda: consumer.workers)
        assert received(consumer) > 0.99


def test_where_one_end_has_no_zstandard_batches_go_as_they_are_and_one_line_says_so(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connector, "offered", lambda: (Coding.DICTIONARY,))
    says(consumer, Compression.ZSTD)
    with thread_worker(consumer, tcp=True), thread_worker(consumer, tcp=True):
        eventually(lambda: len(consumer.workers) == 2)
        assert received(consumer) > 0.99
    told = [one.getMessage() for one in caplog.records if "zstandard" in one.getMessage()]
    assert len(told) == 1
    assert "a data worker has no package zstandard" in told[0]
    monkeypatch.undo()
    monkeypatch.setattr(worker_connection, "offered", lambda: (Coding.DICTIONARY,))
    caplog.set_level(logging.WARNING)
    with planes.consumer(share_memory=False) as another:
        says(another, Compression.ZSTD)
        with thread_worker(another, tcp=True):
            eventually(lambda: another.workers)
            assert received(another) > 0.99
    assert "this process has no package zstandard" in caplog.text


def test_a_data_worker_of_an_older_release_is_told_nothing_and_serves(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "offered", tuple)
    monkeypatch.delitem(messages._FIELDS, messages.CODINGS)  # it would end the connection
    says(consumer, Compression.ZSTD)
    with thread_worker(consumer, tcp=True):
        eventually(lambda: consumer.workers)
        assert received(consumer) > 0.99


def test_a_job_that_changes_its_mind_is_obeyed_on_the_connections_that_there_are(
    consumer: Consumer,
) -> None:
    with thread_worker(consumer, tcp=True) as serving:
        eventually(lambda: serving._lines)
        (line,) = serving._lines.values()
        for compression, allowed in (
            (Compression.ZSTD, ZSTD),
            (Compression.NONE, Allowed(())),
            (Compression.AUTO, BOTH),
        ):
            says(consumer, compression)
            eventually(lambda: consumer.pool.makers.links)
            with consumer.pool.makers.lock:
                consumer._allow_coding(*consumer.pool.makers.links.values())
            eventually(lambda want=allowed: line.allowed == want)


def test_a_bomb_ends_the_connection_before_there_is_memory_for_it(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    import zstandard

    host, _, port = consumer.address.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        peer = handshake.call(sock, TOKEN, "odd", codings=(Coding.ZSTD,))
        assert peer.seals is not None
        eventually(lambda: consumer.workers)
        bomb = zstandard.ZstdCompressor().compress(bytes(32 << 20))
        header = [1, 0, b"", 4096, b"zstd", [0.1, 0.1, 0.0, 0]]
        frame.send(sock, messages.CODED, header, [bomb], seal=peer.seals.sending)
        eventually(lambda: not consumer.workers)
    assert "in a frame that is to become 33554432" in caplog.text
    assert same(
        list(Loader(Plain(40), 4, seed=1, consumer=consumer)), list(Loader(Plain(40), 4, seed=1))
    )


class Link:
    """A slow connection with a clock of its own, on which both codings are tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[Coding, float]) -> None:
        monkeypatch.setattr(link_coding, "SLOW_SECONDS", 2e-9)
        self.now = 0.0
        self.use = LinkUse(0.0, 0)
        self.used: list[Coding] = []
        self.coding = LinkCoding(lambda: self.use, lambda: self.now)
        real = self.coding._coded

        def timed(coding: Coding, packed: Any, worth: float) -> Any:
            self.used.append(coding)
            self.now += seconds[coding] * packed.size
            return real(coding, packed, worth)

        monkeypatch.setattr(self.coding, "_coded", timed)

    def send(self, packed: Any, count: int, allowed: Allowed = BOTH) -> list[Coding]:
        self.used.clear()
        for _ in range(count):
            found = self.coding.code(packed, 0.0, allowed)
            size = packed.size if found is None else found.size
            busy, arrived = self.use
            self.use = LinkUse(busy + 8e-9 * size, arrived + size)
        return list(self.used)


SMOOTH = pack(np.arange(1 << 18, dtype=np.int64) // 20)  # more values than a dictionary has
LEVELS = pack(np.random.default_rng(0).integers(0, 200, 1 << 18).astype(np.float32))
QUICK = {Coding.DICTIONARY: 1e-9, Coding.ZSTD: 1e-9}


def test_the_better_coding_is_kept_and_the_other_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Link(monkeypatch, QUICK)
    link.send(LEVELS, 20)
    used = link.send(LEVELS, 2 * link_coding.FORGOTTEN_AFTER)
    assert used.count(Coding.DICTIONARY) > 0.98 * len(used), "a byte a value, and no more to save"
    assert 1 <= used.count(Coding.ZSTD) <= 4
    used = link.send(SMOOTH, 100)
    assert used.count(Coding.ZSTD) > 90, "and the other as soon as it is the better one"


def test_zstd_that_takes_too_long_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(monkeypatch, {Coding.DICTIONARY: 1e-9, Coding.ZSTD: 1e-7})
    link.send(LEVELS, 20)
    assert set(link.send(LEVELS, 100)) == {Coding.DICTIONARY}


def test_where_zstd_is_always_wanted_noise_is_tried_less_and_less(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    noise = pack(np.random.default_rng(0).integers(0, 256, 1 << 18).astype(np.uint8))
    link = Link(monkeypatch, QUICK)
    assert 3 <= len(link.send(noise, 500, ZSTD)) <= 6
    assert caplog.text.count("do not become smaller") == 1
