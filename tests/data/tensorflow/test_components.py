"""Elements on their way: as they were, also texts and types that NumPy does not have."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.data.tensorflow.components import (
    Component,
    Form,
    decode,
    difference,
    encode,
    names_of,
)
from penstock.data.transport.batch_codec import pack
from penstock.data.transport.layout import unpack
from tests.data.planes import freeze


class Pair(NamedTuple):
    left: Any
    right: Any


RAW = np.dtype("V2")


def sent(component: Component, value: Any, dtype: Any = object) -> Any:
    """One component as it is after it was encoded, packed, unpacked and decoded."""
    packed = pack(encode([component], [value]))
    body = bytearray(b"".join(memoryview(part).tobytes() for part in packed.parts))
    parts = unpack(packed.structure, memoryview(body), packed.size)
    return decode([component], parts, [dtype])[0]


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.float64(3.5),
        np.zeros((0, 4), np.int64),
        np.array([True, False]),
        np.ones((2, 2), np.complex64),
    ],
)
def test_numbers_are_as_they_were(value: Any) -> None:
    assert freeze(sent(Component("", "any", None), value)) == freeze(value)


@pytest.mark.parametrize(
    "value",
    [
        b"one text",
        b"",
        np.array([b"a", b"", "\u00e9t\u00e9".encode(), b"\x00\xff"], object),
        np.array([[b"a", b"bc"], [b"", b"d"]], object),
        np.array([], object),
    ],
)
def test_texts_are_as_they_were(value: Any) -> None:
    got = sent(Component("", "string", None, Form.TEXTS), value)
    assert np.shape(got) == np.shape(value)
    assert np.asarray(got, object).tolist() == np.asarray(value, object).tolist()


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0, 2)])
def test_types_that_numpy_does_not_have_travel_as_bytes(shape: tuple[int, ...]) -> None:
    value = np.arange(int(np.prod(shape)), dtype=np.uint16).reshape(shape).view(RAW)
    got = sent(Component("", "bfloat16", None, Form.RAW), value, RAW)
    assert got.dtype == RAW
    assert got.shape == value.shape
    assert got.tobytes() == value.tobytes()


def test_components_have_names_in_the_order_of_nest() -> None:
    structure = {"y": (1, [2, 3]), "x": Pair(4, {"a": 5})}
    assert names_of(structure) == [
        "['x'].left",
        "['x'].right['a']",
        "['y'][0]",
        "['y'][1][0]",
        "['y'][1][1]",
    ]
    assert names_of(7) == [""]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([Component("a", "int64", (None, 3))], ""),
        ([Component("a", "int64", (8, 3))], ""),
        ([Component("a", "int64", None)], ""),
        ([Component("a", "int64", (8, 4))], r"component a: int64 \[8, 4\], and int64 \[\?, 3\]"),
        ([Component("a", "int64", (8,))], "component a"),
        ([Component("a", "int32", (8, 3))], "int32"),
        ([Component("b", "int64", (8, 3))], r"\['b'\], and \['a'\] are declared"),
        ([], "declared"),
    ],
)
def test_a_shard_that_differs_is_told_in_what(found: list[Component], says: str) -> None:
    said = difference([Component("a", "int64", (None, 3))], found)
    assert bool(said) == bool(says)
    if says:
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(said)
