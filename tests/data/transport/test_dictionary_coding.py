"""Coding of batches for a slow link: the same bits come out, and nothing is believed on the way."""

from __future__ import annotations

import contextlib
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.errors import FrameError
from penstock.data.transport.batch_codec import Packed, pack
from penstock.data.transport.dictionary_coding import Coded, Encoder, decode


def bytes_of(parts: list[Any]) -> bytes:
    return b"".join(bytes(memoryview(part).cast("B")) for part in parts if len(part))


def decoded(coded: Coded, size: int) -> bytes:
    into = bytearray(size)
    decode(coded.coding, memoryview(bytes_of(coded.parts)), memoryview(into))
    return bytes(into)


def pictures(seed: int, levels: int = 256) -> np.ndarray:
    """Four of three channels, normalised as for a model."""
    source = np.random.default_rng(seed)
    plain = source.integers(0, levels, (4, 3, 96, 96)).astype(np.float32) / 255
    mean = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
    found: np.ndarray = (plain - mean) / np.float32(0.225)
    return found


def test_pictures_that_were_normalised_take_a_byte_a_value() -> None:
    encoder = Encoder()
    for seed in range(3):
        packed = pack({"picture": pictures(seed), "label": np.arange(4)})
        coded = encoder.encode(packed)
        assert coded is not None
        assert packed.size / coded.size > 3.8
        assert coded.size == len(bytes_of(coded.parts))
        assert decoded(coded, packed.size) == bytes_of(packed.parts)


def test_channels_that_lie_side_by_side_have_values_of_their_own() -> None:
    side_by_side = np.ascontiguousarray(pictures(0).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    packed = pack(side_by_side)
    coded = Encoder().encode(packed)
    assert coded is not None
    assert packed.size / coded.size > 3.8
    assert decoded(coded, packed.size) == bytes_of(packed.parts)


def test_a_level_that_comes_later_is_learned() -> None:
    encoder = Encoder()
    for levels in (20, 200, 256, 3):
        packed = pack(pictures(1, levels))
        coded = encoder.encode(packed)
        assert coded is not None
        assert decoded(coded, packed.size) == bytes_of(packed.parts)


def test_what_has_many_values_is_left_as_it_is() -> None:
    noise = np.random.default_rng(0).normal(size=(4, 3, 96, 96)).astype(np.float32)
    assert Encoder().encode(pack(noise)) is None
    assert Encoder().encode(pack(np.arange(100_000))) is None
    assert Encoder().encode(pack(np.zeros((300, 300), np.uint8))) is None
    assert Encoder().encode(pack([noise, noise, pictures(0)])) is None  # 75 % would be left
    assert Encoder().encode(pack([noise, pictures(0)])) is not None


KINDS = st.sampled_from(["f4", "f8", "i4", "i8", "u4", "u8"])


@st.composite
def batches(draw: st.DrawFn) -> list[Any]:
    """Arrays of few values, which may be any bits at all, among small ones and texts."""
    found: list[Any] = [np.arange(draw(st.integers(0, 9))), "text"]
    for _ in range(draw(st.integers(1, 3))):
        kind = np.dtype(draw(KINDS))
        words = draw(st.binary(min_size=kind.itemsize, max_size=kind.itemsize * 300))
        few = np.frombuffer(words[: len(words) - len(words) % kind.itemsize], kind)
        shape = draw(st.sampled_from([(3, 100, 100), (70_001,), (2, 3, 64, 65), (200, 300, 2)]))
        source = np.random.default_rng(draw(st.integers(0, 9)))
        found.append(few[source.integers(0, len(few), shape)])
    return found


@given(st.lists(batches(), min_size=1, max_size=3))
def test_any_bits_come_out_as_they_went_in(several: list[list[Any]]) -> None:
    encoder = Encoder()
    for batch in several:
        packed = pack(batch)
        coded = encoder.encode(packed)
        if coded is not None:
            assert coded.size <= 0.7 * packed.size
            assert decoded(coded, packed.size) == bytes_of(packed.parts)


GOOD = pack({"picture": pictures(0), "label": np.arange(4)})


@given(st.data())
def test_what_was_changed_on_the_way_is_an_error_or_other_values(data: st.DataObject) -> None:
    """Whoever holds the job's token may send other values; nobody writes beyond the batch."""
    coded = Encoder().encode(GOOD)
    assert coded is not None
    segments = msgpack.unpackb(coded.coding)
    body = bytes_of(coded.parts)
    row = data.draw(st.integers(0, len(segments) - 1))
    at = data.draw(st.integers(0, len(segments[row]) - 1))
    segments[row][at] = data.draw(
        st.one_of(st.integers(-5, 1 << 40), st.binary(max_size=20), st.none(), st.text(max_size=3))
    )
    body = body[: data.draw(st.sampled_from([len(body), len(body) - 1, 0]))]
    into = bytearray(GOOD.size + 64)
    into[GOOD.size :] = b"#" * 64
    with contextlib.suppress(FrameError):
        decode(msgpack.packb(segments), memoryview(body), memoryview(into)[: GOOD.size])
    assert into[GOOD.size :] == b"#" * 64


@pytest.mark.parametrize("coding", [b"", b"\x00", None, 5, msgpack.packb([[1, 2]]), b"\xdd\xff"])
def test_what_is_no_coding_is_refused(coding: Any) -> None:
    with pytest.raises(FrameError):
        decode(coding, memoryview(b"x"), memoryview(bytearray(8)))


def test_more_segments_than_a_batch_has_are_not_made() -> None:
    many = [np.arange(4)] * 5000
    packed = pack([*many, *[pictures(0)] * 8])
    assert isinstance(packed, Packed)
    assert Encoder().encode(packed) is None
