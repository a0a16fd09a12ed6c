"""Batches come back bit by bit, with their structure and their layout in memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from penstock.data.errors import FrameError, NotPortableError
from penstock.data.transport.batch_codec import ARRAY, MANY_TEXTS, TEXTS, Packer, pack
from penstock.data.transport.layout import COPIED_BELOW, unpack


class Point(NamedTuple):
    x: Any
    y: Any


def through(batch: Any) -> Any:
    packed = pack(batch)
    body = bytearray(b"".join(memoryview(part).tobytes() for part in packed.parts))
    assert len(body) == packed.size
    return unpack(packed.structure, memoryview(body), len(body))


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert one.stride() == other.stride()
        assert one.shape == other.shape
        raw = [t.contiguous().view(-1).view(torch.uint8).tolist() for t in (one, other)]
        assert raw[0] == raw[1]
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            same(left, right)
    else:
        assert one == other or one != one


LEAVES = (
    arrays.arrays(
        dtype=arrays.scalar_dtypes(), shape=arrays.array_shapes(min_dims=0, min_side=0, max_side=4)
    )
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.none()
    | st.booleans()
    | st.complex_numbers(allow_nan=False)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(-5, 5), inner, max_size=3)
        | st.lists(st.text(max_size=3), min_size=MANY_TEXTS, max_size=2 * MANY_TEXTS)
        | st.lists(st.text(max_size=3), min_size=MANY_TEXTS, max_size=MANY_TEXTS).map(tuple)
    ),
    max_leaves=6,
)


@given(TREES)
def test_any_structure_comes_back(batch: Any) -> None:
    same(through(batch), batch)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64],
)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4), (64, 100)])
def test_tensors_of_any_type_come_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.rand(shape) * 100).to(dtype)
    same(through({"x": tensor, "y": [tensor, 3]}), {"x": tensor, "y": [tensor, 3]})


def test_the_layout_in_memory_is_kept() -> None:
    image = torch.rand(2, 3, 40, 50).contiguous(memory_format=torch.channels_last)
    got = through(image)
    same(got, image)
    assert got.is_contiguous(memory_format=torch.channels_last)
    array = np.asfortranarray(np.random.rand(30, 40))
    assert through(array).flags.f_contiguous


def test_gaps_in_a_view_are_not_sent() -> None:
    every_other = torch.arange(1000)[::2]
    assert pack(every_other).size == every_other.numel() * 8
    assert torch.equal(through(every_other), every_other)


def test_named_tuples_and_numpy_scalars_come_back() -> None:
    got = through(Point(np.float32(1.5), torch.ones(3)))
    assert type(got) is Point
    assert type(got.x) is np.float32


def test_large_arrays_share_the_body_and_small_ones_do_not() -> None:
    batch = [np.zeros(COPIED_BELOW // 8, np.float64), np.zeros(10), torch.zeros(COPIED_BELOW // 4)]
    packed = pack(batch)
    body = bytearray(b"".join(memoryview(part).tobytes() for part in packed.parts))
    large, small, tensor = unpack(packed.structure, memoryview(body), len(body))
    body[:8] = b"\xff" * 8
    assert np.isnan(large[0])
    assert small[0] == 0
    at = len(body) - COPIED_BELOW
    body[at : at + 4] = b"\0\0\x80?"
    assert tensor[0] == 1


class Own:
    pass


@pytest.mark.parametrize(
    "batch",
    [
        Own(),
        {"x": {1, 2}},
        np.array([Own()]),
        torch.ones(3, requires_grad=True),
        torch.ones(3, 3).to_sparse(),
        OrderedDict(a=1),
        {(1, 2): 3},
    ],
)
def test_what_cannot_be_sent_is_named(batch: Any) -> None:
    with pytest.raises(NotPortableError, match="batch holds"):
        pack(batch)


@pytest.mark.parametrize(
    "structure",
    [
        [99],
        [],
        None,
        [5, "<f8", [1000], None],
        [5, "|O", [1], None],
        [5, "<f8", [-1], None],
        [6, "load", [1], None],
        [5, "<f8", [2, 2], [0, 0]],
        [4, "os:system", [[0, "true"]]],
        [4, "subprocess:Popen", [[0, "true"]]],
    ],
)
def test_a_structure_from_a_liar_is_refused(structure: Any) -> None:
    with pytest.raises((FrameError, NotPortableError)):
        unpack(msgpack.packb(structure), memoryview(bytearray(64)), 64)


def test_many_texts_are_two_arrays() -> None:
    words = [[f"column {column}: {row:x}" for row in range(256)] for column in range(26)]
    packed = pack(words)
    assert len(packed.structure) < 1000
    same(through([tuple(column) for column in words]), [tuple(column) for column in words])
    mixed = [["\U0001f600", "ß", ""] * 10, ["a"] * 20 + [1]]
    same(through(mixed), mixed)


def test_texts_that_are_no_unicode_are_not_sent() -> None:
    with pytest.raises(NotPortableError, match="cannot be sent"):
        pack(["\udc80.jpg"] * MANY_TEXTS)


LENGTHS, CHARACTERS = [ARRAY, "<i8", [2], None], [ARRAY, "|u1", [3], None]


@pytest.mark.parametrize(
    ("nodes", "body"),
    [
        ([LENGTHS, CHARACTERS], np.array([2, 2], "<i8").tobytes()),
        ([LENGTHS, CHARACTERS], np.array([-1, 4], "<i8").tobytes()),
        ([LENGTHS, [ARRAY, "<i8", [3], None]], b""),
        ([LENGTHS], b""),
        ([LENGTHS, CHARACTERS, CHARACTERS], b""),
        ([LENGTHS, [0, "abc"]], b""),
        ([[ARRAY, "<i8", [2, 1], None], CHARACTERS], b""),
    ],
)
def test_texts_from_a_liar_are_refused(nodes: list[Any], body: bytes) -> None:
    sent = bytearray(256)
    sent[: len(body)] = body
    sent[64:67] = b"abc"
    with pytest.raises(FrameError):
        unpack(msgpack.packb([TEXTS, False, *nodes]), memoryview(sent), 256)


def test_bytes_that_are_no_texts_are_refused() -> None:
    sent = bytearray(256)
    sent[:16] = np.array([1, 2], "<i8").tobytes()
    sent[64:67] = b"\xff\xfe\xfd"
    with pytest.raises(FrameError, match="cannot be read"):
        unpack(msgpack.packb([TEXTS, False, LENGTHS, CHARACTERS]), memoryview(sent), 256)


def bodies(packed: Any) -> bytearray:
    return bytearray(b"".join(memoryview(part).tobytes() for part in packed.parts))


@given(st.lists(TREES, min_size=2, max_size=4))
def test_a_packer_owes_nothing_to_the_batch_before(batches: list[Any]) -> None:
    packer = Packer()
    for batch in batches:
        packed = packer.pack(batch)
        body = bodies(packed)
        assert len(body) == packed.size
        same(unpack(packed.structure, memoryview(body), len(body)), batch)


@pytest.mark.parametrize(
    "batches",
    [
        [np.zeros(5, "S1"), np.zeros(5, np.uint8)],
        [np.zeros(5, "M8[s]"), np.zeros(5, np.int64)],
        [torch.zeros(5, dtype=torch.float8_e5m2), torch.zeros(5, dtype=torch.uint8)],
        [torch.zeros(5), np.zeros(5, np.float32), torch.zeros(5)],
        [[1], [1.0], [True], [1]],
        [{1: 0}, {True: 0}, {1.0: 0}],
        [np.zeros((2, 3)), np.zeros((3, 2)), np.zeros((3, 2)).T, np.zeros((2, 3))],
        [torch.zeros(2, 3), torch.zeros(3, 2).T, torch.zeros(2, 3)],
        [[np.zeros(3), np.zeros(4)], [np.zeros(4), np.zeros(3)], [np.zeros(3)], [np.zeros(0)]],
    ],
)
def test_batches_that_look_alike_are_told_apart(batches: list[Any]) -> None:
    packer = Packer()
    for batch in batches:
        packed = packer.pack(batch)
        body = bodies(packed)
        same(unpack(packed.structure, memoryview(body), len(body)), batch)


@pytest.mark.parametrize("shape", [(), (3,), (2, 700), (0, 2)])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arrays_of_one_kind_that_are_made_together_are_apart(
    shape: tuple[int, ...], library: str
) -> None:
    full: Any = np.full if library == "numpy" else torch.full
    batch = {f"a{n}": full(shape, float(n)) for n in range(5)}
    got = through(batch)
    same(got, batch)
    for array in got.values():
        array[...] += 1  # they are writable, and no other changes
    for key, array in batch.items():
        assert (got[key] == array + 1).all()
