"""The elements of a dataset as arrays on their way: texts, and types that NumPy does not have.

An element travels as its components in `tf.nest`'s order. Numbers travel as they are, texts as one
run of bytes with the length of each, and a type such as bfloat16 as its bytes. What the structure
is, and which types there are, both sides know from the dataset's ``element_spec``: this module
knows NumPy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np


class Form(StrEnum):
    """How a component travels."""

    NUMBERS = "Numbers"
    TEXTS = "Texts"
    RAW = "Raw"


@dataclass(frozen=True)
class Component:
    """One tensor of an element.

    Attributes:
        name: as it is reached in the element: ``['x'][0]``; "" for an element that is one tensor.
        dtype: TensorFlow's name of it.
        shape: None for a dimension that differs; None instead of it: nothing is known of it.
        form: how it travels.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    form: Form = Form.NUMBERS

    def __str__(self) -> str:
        sizes = self.shape
        shape = "any shape" if sizes is None else str(list(sizes)).replace("None", "?")
        return f"{self.dtype} {shape}"


def names_of(structure: Any) -> list[str]:
    """The names of a structure's leaves, in `tf.nest`'s order: dicts by their sorted keys."""
    if isinstance(structure, dict):
        parts = [(f"[{key!r}]", structure[key]) for key in sorted(structure)]
    elif isinstance(structure, tuple) and hasattr(structure, "_fields"):
        parts = [
            (f".{key}", value) for key, value in zip(structure._fields, structure, strict=True)
        ]
    elif isinstance(structure, tuple | list) and type(structure) in (tuple, list):
        parts = [(f"[{number}]", value) for number, value in enumerate(structure)]
    else:
        return [""]
    return [own + below for own, value in parts for below in names_of(value)]


def difference(declared: Sequence[Component], found: Sequence[Component]) -> str:
    """In what a shard's elements do not fit the declared ones; "" if they do."""
    names, others = [one.name for one in declared], [one.name for one in found]
    if names != others:
        return f"its elements are made of {others}, and {names} are declared"
    for one, other in zip(declared, found, strict=True):
        if one.dtype != other.dtype or not _fit(one.shape, other.shape):
            where = f"component {one.name}" if one.name else "its elements"
            return f"{where}: {other}, and {one} is declared"
    return ""


def _fit(declared: tuple[int | None, ...] | None, found: tuple[int | None, ...] | None) -> bool:
    """Whether a shape may turn out to be as declared."""
    if declared is None or found is None:
        return True
    return len(declared) == len(found) and all(
        one is None or other is None or one == other
        for one, other in zip(declared, found, strict=True)
    )


def encode(components: Sequence[Component], values: Sequence[Any]) -> list[Any]:
    """An element's components, as `penstock.data.transport.batch_codec` carries them."""
    return [_encoded(one.form, value) for one, value in zip(components, values, strict=True)]


def _encoded(form: Form, value: Any) -> Any:
    if form is Form.NUMBERS:
        return value
    array = np.asarray(value, object) if form is Form.TEXTS else np.ascontiguousarray(value)
    shape = list(np.shape(value))
    if form is Form.RAW:
        return [shape, array.reshape(-1).view(np.uint8)]
    texts = [one.encode() if isinstance(one, str) else one for one in array.reshape(-1).tolist()]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return [shape, lengths, np.frombuffer(b"".join(texts), np.uint8)]


def decode(
    components: Sequence[Component], parts: Sequence[Any], types: Sequence[Any]
) -> list[Any]:
    """What `encode` was given.

    ``types``: NumPy's of each component, or what stands for it where NumPy has none.
    """
    return [
        _decoded(one.form, part, dtype)
        for one, part, dtype in zip(components, parts, types, strict=True)
    ]


def _decoded(form: Form, part: Any, dtype: Any) -> Any:
    if form is Form.NUMBERS:
        return part
    if form is Form.RAW:
        shape, raw = part
        return raw.view(dtype).reshape(shape)
    shape, lengths, raw = part
    whole, ends = raw.tobytes(), np.cumsum(lengths).tolist()
    begins = [0, *ends[:-1]]
    texts = np.empty(len(ends), object)
    texts[:] = [whole[begin:end] for begin, end in zip(begins, ends, strict=False)]
    return texts.reshape(shape)
