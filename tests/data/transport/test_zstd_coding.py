"""Batches as frames of zstd: the same bits come out, and no frame becomes more than it may."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.errors import FrameError
from penstock.data.transport.batch_codec import Packed, pack
from penstock.data.transport.zstd_coding import (
    CODING,
    WINDOW_LOG,
    ZstdEncoder,
    check,
    decode,
)


def bytes_of(parts: list[Any]) -> bytes:
    return b"".join(bytes(memoryview(part).cast("B")) for part in parts)


def encoded(packed: Packed, worth: float = 10.0) -> bytes:
    coded = ZstdEncoder().encode(packed, worth)
    assert coded is not None
    assert coded.coding == CODING
    body = bytes_of(coded.parts)
    assert len(body) == coded.size
    return body


def decoded(body: bytes, size: int) -> bytes:
    into = bytearray(size + 8)
    decode(memoryview(body), memoryview(into)[:size])
    assert into[size:] == bytes(8), "nothing is written behind it"
    return bytes(into[:size])


BATCHES = {
    "floats": np.random.default_rng(0).normal(size=(8, 64, 64)),
    "few values": np.random.default_rng(0).integers(0, 3, (16, 5000)),
    "tensors of many types": {
        "half": torch.arange(4000, dtype=torch.bfloat16),
        "bool": torch.zeros(4000, dtype=torch.bool),
        "long": [torch.arange(1000), torch.ones(3, 1000)],
        "transposed": torch.arange(6000.0).reshape(60, 100).T,
    },
    "texts": {"text": np.array(["one", "another"] * 400), "when": np.arange(900).astype("M8[s]")},
}


@pytest.mark.parametrize("kind", BATCHES)
def test_what_is_decoded_is_what_was_encoded(kind: str) -> None:
    packed = pack(BATCHES[kind])
    assert decoded(encoded(packed), packed.size) == bytes_of(packed.parts)


def test_one_encoder_makes_one_batch_after_the_other() -> None:
    encoder = ZstdEncoder()
    assert encoder.encode(pack(BATCHES["floats"]), 0.5) is None  # given up in the middle
    packed = pack(BATCHES["few values"])
    coded = encoder.encode(packed, 0.5)
    assert coded is not None
    assert decoded(bytes_of(coded.parts), packed.size) == bytes_of(packed.parts)


def test_what_would_save_too_little_is_not_encoded() -> None:
    assert ZstdEncoder().encode(pack(BATCHES["floats"]), 0.9) is None
    assert ZstdEncoder().encode(pack(np.zeros(8)), 0.9) is None


@given(st.binary(max_size=4000), st.integers(0, 5000))
def test_nothing_that_comes_is_believed(body: bytes, size: int) -> None:
    with pytest.raises(FrameError):
        decoded(body, size)


@given(st.data())
def test_a_changed_frame_gives_an_error_or_as_many_bytes(data: st.DataObject) -> None:
    packed = pack(np.arange(3000) % 97)
    body = bytearray(encoded(packed))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    try:
        found = decoded(bytes(body), packed.size)
    except FrameError:
        return
    assert len(found) == packed.size


@pytest.mark.parametrize("claimed", [1, 100, (1 << 20) - 1, (1 << 20) + 1, 1 << 30])
def test_a_frame_that_becomes_more_or_less_than_was_announced_is_refused(claimed: int) -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    with pytest.raises(FrameError, match="is to become 1048576"):
        check(memoryview(bomb), claimed)


def test_a_frame_that_does_not_say_what_it_becomes_is_refused() -> None:
    how = zstandard.ZstdCompressor(write_content_size=False)
    body = how.compress(bytes(1 << 20))
    with pytest.raises(FrameError, match="refused"):
        check(memoryview(body), 1 << 20)


def test_a_window_beyond_the_bound_is_refused() -> None:
    size = 64 << 20
    how = zstandard.ZstdCompressionParameters.from_level(1, window_log=WINDOW_LOG + 3)
    stream = zstandard.ZstdCompressor(compression_params=how).compressobj(size=size)
    parts = [stream.compress(bytes(1 << 20)) for _ in range(64)]
    body = b"".join([*parts, stream.flush()])
    with pytest.raises(FrameError):
        decode(memoryview(body), memoryview(bytearray(size)))


def test_a_frame_behind_a_frame_is_refused() -> None:
    packed = pack(np.arange(3000))
    with pytest.raises(FrameError, match="another length"):
        decoded(encoded(packed) * 2, packed.size)


def test_where_the_package_is_missing_nothing_is_offered() -> None:
    code = (
        "import sys; sys.modules['zstandard'] = None\n"
        "import importlib.util as util; find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'zstandard' else find(name, *rest)\n"
        "from penstock.data.transport import codings, zstd_coding\n"
        "from penstock.data.errors import FrameError\n"
        "assert codings.offered() == (codings.Coding.DICTIONARY,)\n"
        "try: zstd_coding.check(memoryview(b'x'), 1)\n"
        "except FrameError as error: print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "was not asked for" in found.stdout
