"""What loaders in free order are told by a data worker, and what that looks up once."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.data.ledger import Permutation
from penstock.data.pipeline import Pipeline
from penstock.data.serving.consumer_connection import ConsumerConnection, Request
from penstock.data.serving.shared.collate_guard import CollateGuard
from penstock.data.serving.shared.free_samples import FreeSamples
from penstock.data.sharing.pipeline import SharedPipeline, lacks_bytes

SIZE, TILE = 43, 4
TILES = 11


class Numbers:
    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        return index


SHARED = SharedPipeline(Pipeline(Numbers(), list), SIZE, TILE, b"the key of it all" * 2)


@pytest.fixture
def line() -> Iterator[ConsumerConnection]:
    with socket.socket() as sock:
        yield ConsumerConnection("a job", sock)


def join(samples: FreeSamples, line: ConsumerConnection, stream: int, lacking: int) -> None:
    lacks = np.arange(TILES) < lacking
    samples.join(line, stream, f"loader {stream}", lacks_bytes(lacks))


def test_who_has_nobody_else_to_ask_is_told_nothing(line: ConsumerConnection) -> None:
    samples = FreeSamples(SHARED, 1, 1 << 20)
    join(samples, line, 1, TILES)
    join(samples, line, 2, TILES - 1)  # all but the tile with fewer samples
    join(samples, line, 3, TILES // 2)  # the others are another data worker's
    for step in range(3):
        samples.make(Request(line, 1, step, b"", 0, 2, 0), SHARED, CollateGuard())
    told = [(stream, ready) for _, stream, ready in samples.news()]
    assert [stream for stream, _ in told] == [3]
    assert told[0][1] > 0
    assert not list(samples.news()), "once"


def test_the_samples_of_a_tile_are_looked_up_once(
    line: ConsumerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []
    take_of = Permutation.take

    def counting(order: Permutation, start: int, stop: int) -> Any:
        looked_up.append(start // TILE)
        return take_of(order, start, stop)

    samples = FreeSamples(SHARED, 1, 1 << 20)
    for stream in (1, 2):
        join(samples, line, stream, TILES - 1)
    expected = [SHARED.samples(tile) for tile in range(TILES)]
    found: dict[int, list[int]] = {1: [], 2: []}
    with monkeypatch.context() as patched:
        patched.setattr(Permutation, "take", counting)
        for stream, step in itertools.product(found, range(5)):
            request = Request(line, stream, step, b"", 0, 2, 0)
            batch, tiles = samples.make(request, SHARED, CollateGuard())
            assert batch == [index for tile in tiles for index in expected[tile]]
            found[stream] += batch
    assert sorted(looked_up) == list(range(TILES - 1))
    assert sorted(found[1]) == sorted(found[2])
