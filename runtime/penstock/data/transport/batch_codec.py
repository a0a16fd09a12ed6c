"""A batch as plain data: its structure in the header, its arrays as raw bytes in the body.

Arrays and tensors inside lists, tuples, named tuples, dicts and the usual scalars are carried; any
other object raises NotPortableError, because nothing that comes from the network is unpickled.
`penstock.data.transport.layout` makes the batch of it again, bit by bit, and with the same order of
dimensions in memory, since kernels may round differently for another layout. Arrays begin at
multiples of `ALIGNMENT`. Many texts in one list or tuple, as a column of words, are two arrays: how
many characters each has, and all of them in UTF-8.

PyTorch is touched only if the batch holds its tensors, and then it is loaded already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np

from penstock.data.errors import NotPortableError

ALIGNMENT: Final = 64
MAX_DEPTH: Final = 64

PLAIN, LIST, TUPLE, DICT, NAMED, ARRAY, TENSOR, SCALAR, BIG, COMPLEX, TEXTS = range(11)
"""Kinds of nodes of a structure."""
MANY_TEXTS: Final = 16
"""So many together are arrays; a node for each takes 2 us at either end."""

_PADS: Final = [bytes(count) for count in range(ALIGNMENT)]
_SCALARS: Final = (str, bytes, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch ready to be sent: ``parts`` are contiguous buffers of together ``size`` bytes."""

    structure: bytes
    parts: list[Any]
    size: int


class Packer:
    """Packs one batch after the other.

    Most are built as the one before. So a node that was made for an array or tensor is used again
    where the next batch has one of the same type and shape in the same place, and the structure is
    written anew only if it differs: an array then costs a look at its type, shape and layout.
    """

    def __init__(self) -> None:
        self._torch = sys.modules.get("torch")
        self._known: list[tuple[Any, Any, Any, list[Any], int]] = []
        """Of each array of the last batch: class, NumPy type, shape, node, bytes."""
        self._root: Any = None
        self._structure = b""
        self._parts: list[Any] = []
        self._size = 0
        self._at = 0  # arrays of this batch so far
        self._numbers = False  # 1, 1.0 and True are equal, so equal structures may differ
        self._unknown: set[Any] = set()  # PyTorch's types that NumPy does not have

    def pack(self, batch: Any) -> Packed:
        """A batch as structure and parts; no array is copied that lies dense in memory.

        Raises:
            NotPortableError: it holds something that cannot be sent.
        """
        self._torch = sys.modules.get("torch")
        self._parts, self._size, self._at, self._numbers = [], 0, 0, False
        (root,) = self._nodes((batch,), 0)
        if self._numbers or root != self._root or not self._structure:
            self._root, self._structure = root, _written(root)
        packed = Packed(self._structure, self._parts, self._size)
        self._parts = []
        return packed

    def _nodes(self, values: Iterable[Any], depth: int) -> list[list[Any]]:
        # In a batch of many arrays this loop is what packing costs: it works on locals.
        known, parts, nodes, ndarray = self._known, self._parts, [], np.ndarray
        tensor = None if self._torch is None else self._torch.Tensor
        unknown = self._unknown  # to ask NumPy raises, which takes longer than all else here
        at, total, count = self._at, self._size, len(known)
        for value in values:
            kind = type(value)
            raw = value if kind is ndarray else None
            if kind is tensor and value.dtype not in unknown:
                try:
                    raw = value.numpy()
                except (TypeError, RuntimeError):  # `_tensor` knows why
                    raw = None
            if raw is not None and at < count:
                of, dtype, shape, node, size = known[at]
                if (
                    kind is of
                    and raw.dtype is dtype
                    and raw.shape == shape
                    and raw.flags.c_contiguous
                ):
                    at += 1
                    nodes.append(node)
                    if gap := -total % ALIGNMENT:
                        parts.append(_PADS[gap])
                        total += gap
                    parts.append(raw)
                    total += size
                    continue
            self._at, self._size = at, total
            nodes.append(self._node(value, depth))
            at, total, count = self._at, self._size, len(known)
        self._at, self._size = at, total
        return nodes

    def _node(self, value: Any, depth: int) -> list[Any]:
        kind = type(value)
        if kind is np.ndarray:
            return self._array(value)
        if self._torch is not None and isinstance(value, self._torch.Tensor):
            return self._tensor(value)
        if kind in _SCALARS:
            self._numbers = self._numbers or kind in (float, bool)
            return [PLAIN, value]
        if kind is int:
            self._numbers = True
            fits = -(1 << 63) <= value < 1 << 63
            return [PLAIN, value] if fits else [BIG, str(value)]
        if depth > MAX_DEPTH:
            raise NotPortableError(f"a batch nested deeper than {MAX_DEPTH} levels")
        if (kind is list or kind is tuple) and len(value) >= MANY_TEXTS and _are_texts(value):
            return self._texts(value)
        if kind is list:
            return [LIST, self._nodes(value, depth + 1)]
        if kind is tuple:
            return [TUPLE, self._nodes(value, depth + 1)]
        if kind is dict:
            keys = [self._key(key) for key in value]
            return [DICT, keys, self._nodes(value.values(), depth + 1)]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            name = f"{kind.__module__}:{kind.__qualname__}"
            return [NAMED, name, self._nodes(value, depth + 1)]
        if isinstance(value, np.generic):
            return [SCALAR, self._array(np.asarray(value))]
        if kind is complex:
            self._numbers = True
            return [COMPLEX, value.real, value.imag]
        raise NotPortableError(
            f"the batch holds a {kind.__module__}.{kind.__qualname__}; only tensors, arrays, "
            "numbers, strings and lists, tuples and dicts of them can be sent"
        )

    def _texts(self, texts: list[str] | tuple[str, ...]) -> list[Any]:
        try:
            written = "".join(texts).encode()
        except UnicodeEncodeError as error:  # bytes that are no UTF-8, as names of files may have
            raise NotPortableError(f"the batch holds what cannot be sent: {error}") from error
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        characters = np.frombuffer(written, np.uint8)
        return [TEXTS, type(texts) is tuple, self._array(lengths), self._array(characters)]

    def _key(self, key: Any) -> Any:
        kind = type(key)
        if kind is str:
            return key
        if kind in (int, bool, float, bytes, type(None)):
            self._numbers = True
            return key
        raise NotPortableError(f"the batch holds a dict with the key {key!r}; only str and numbers")

    def _array(self, array: np.ndarray[Any, Any]) -> list[Any]:
        name = _NAMES.get(array.dtype) or _name_of(array.dtype)
        order, raw = None, array
        if not array.flags.c_contiguous:
            order, raw = _dense(array, array.strides, array.ndim)
            raw = np.ascontiguousarray(raw)
        node = [ARRAY, name, raw.shape, order]
        if raw.dtype.kind in "mM":  # memoryviews know no times
            raw = raw.view(np.int64)
        elif raw.dtype.kind in "SU":
            raw = raw.reshape(-1).view(np.uint8)
        return self._add(node, np.ndarray if raw is array else None, raw)

    def _tensor(self, tensor: Any) -> list[Any]:
        torch = self._torch
        assert torch is not None
        kind = type(tensor)
        other = kind is not torch.Tensor and kind is not torch.nn.Parameter
        if other or tensor.is_quantized or tensor.is_nested:
            raise NotPortableError(f"the batch holds a {kind.__module__}.{kind.__qualname__}")
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise NotPortableError(
                f"the batch holds a tensor of layout {tensor.layout} on {tensor.device}; only "
                "dense ones in main memory can be sent"
            )
        if tensor.requires_grad:
            raise NotPortableError("the batch holds a tensor that requires a gradient")
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        order = None
        if not tensor.is_contiguous():
            order, tensor = _dense(tensor, tensor.stride(), tensor.dim())
            tensor = tensor.contiguous()
        node = [TENSOR, str(tensor.dtype)[6:], tuple(tensor.shape), order]
        raw = None
        if tensor.dtype not in self._unknown:
            try:
                raw = tensor.numpy()
            except TypeError:
                self._unknown.add(tensor.dtype)
        if raw is None:
            return self._add(node, None, tensor.view(-1).view(torch.uint8).numpy())
        return self._add(node, None if order else kind, raw)

    def _add(self, node: list[Any], kind: Any, raw: np.ndarray[Any, Any]) -> list[Any]:
        """Take in an array's bytes; a ``kind`` is given if they are the array's own, as it lies."""
        size = raw.nbytes
        if size:
            if gap := -self._size % ALIGNMENT:
                self._parts.append(_PADS[gap])
                self._size += gap
            self._parts.append(raw)
            self._size += size
        known = (kind if size else None, raw.dtype, raw.shape, node, size)
        self._known[self._at : self._at + 1] = [known]
        self._at += 1
        return node


def _are_texts(values: list[Any] | tuple[Any, ...]) -> bool:
    return type(values[0]) is str and set(map(type, values)) == {str}


def _written(root: Any) -> bytes:
    try:
        structure: bytes = msgpack.packb(root)
    except (ValueError, OverflowError) as error:
        # Texts with bytes that are no UTF-8, as names of files may have; keys above 64 bits.
        raise NotPortableError(f"the batch holds what cannot be sent: {error}") from error
    return structure


_NAMES: Final[dict[np.dtype[Any], str]] = {}
_MAX_NAMES: Final = 1000


def _name_of(dtype: np.dtype[Any]) -> str:
    """How an array's type is written; remembered, because NumPy spells it out each time."""
    if dtype.kind not in "biufcmMSU":
        raise NotPortableError(f"the batch holds an array of dtype {dtype}")
    if len(_NAMES) < _MAX_NAMES:
        _NAMES[dtype] = dtype.str
    return dtype.str


def _dense(array: Any, strides: Any, dims: int) -> tuple[list[int], Any]:
    """The dimensions in the order in which they lie in memory, and the array in that order."""
    order = sorted(range(dims), key=lambda dim: -strides[dim])
    return order, (
        array.transpose(order) if isinstance(array, np.ndarray) else array.permute(order)
    )


def pack(batch: Any) -> Packed:
    """One batch on its own, as by `Packer.pack`."""
    return Packer().pack(batch)
