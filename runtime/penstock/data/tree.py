"""A batch as plain data: its structure in the header, its arrays as raw bytes in the body.

Arrays and tensors inside lists, tuples, named tuples, dicts and the usual scalars are carried; any
other object raises NotPortableError, because nothing that comes from the network is unpickled.
Values come back bit by bit, and so does the order of their dimensions in memory, since kernels may
round differently for another layout. Arrays begin at multiples of `ALIGNMENT`.

PyTorch is touched only if the batch holds its tensors, and then it is loaded already.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.data.errors import FrameError, NotPortableError

ALIGNMENT: Final = 64
COPIED_BELOW: Final = 4096
"""Smaller arrays are copied out: a list of labels kept must not keep whole batches."""
MAX_DEPTH: Final = 64

_PAD = bytes(ALIGNMENT)
_SCALARS = (str, bytes, float, bool, type(None))
_PLAIN, _LIST, _TUPLE, _DICT, _NAMED, _ARRAY, _TENSOR, _SCALAR, _BIG, _COMPLEX = range(10)


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch ready to be sent."""

    structure: list[Any]
    parts: list[memoryview | bytes]
    size: int


class _Packer:
    def __init__(self) -> None:
        self.parts: list[memoryview | bytes] = []
        self.size = 0
        self._torch = sys.modules.get("torch")

    def node(self, value: Any, depth: int = 0) -> list[Any]:
        kind = type(value)
        if kind is np.ndarray:
            return self._array(value)
        if self._torch is not None and isinstance(value, self._torch.Tensor):
            return self._tensor(value)
        if kind in _SCALARS:
            return [_PLAIN, value]
        if kind is int:
            fits = -(1 << 63) <= value < 1 << 63
            return [_PLAIN, value] if fits else [_BIG, str(value)]
        if depth > MAX_DEPTH:
            raise NotPortableError(f"a batch nested deeper than {MAX_DEPTH} levels")
        if kind is list:
            return [_LIST, [self.node(one, depth + 1) for one in value]]
        if kind is tuple:
            return [_TUPLE, [self.node(one, depth + 1) for one in value]]
        if kind is dict:
            return [
                _DICT,
                [[self._key(key), self.node(one, depth + 1)] for key, one in value.items()],
            ]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            name = f"{kind.__module__}:{kind.__qualname__}"
            return [_NAMED, name, [self.node(one, depth + 1) for one in value]]
        if isinstance(value, np.generic):
            return [_SCALAR, self._array(np.asarray(value))]
        if kind is complex:
            return [_COMPLEX, value.real, value.imag]
        raise NotPortableError(
            f"the batch holds a {kind.__module__}.{kind.__qualname__}; only tensors, arrays, "
            "numbers, strings and lists, tuples and dicts of them can be sent"
        )

    def _key(self, key: Any) -> Any:
        if type(key) in (str, int, bool, float, bytes, type(None)):
            return key
        raise NotPortableError(f"the batch holds a dict with the key {key!r}; only str and numbers")

    def _array(self, array: np.ndarray[Any, Any]) -> list[Any]:
        if array.dtype.kind not in "biufcmMSU":
            raise NotPortableError(f"the batch holds an array of dtype {array.dtype}")
        order = None
        if not array.flags.c_contiguous:
            order, array = _dense(array, array.strides, array.ndim)
            array = np.ascontiguousarray(array)
        self._add(array.reshape(-1).view(np.uint8).data if array.nbytes else b"")
        return [_ARRAY, array.dtype.str, array.shape, order]

    def _tensor(self, tensor: Any) -> list[Any]:
        torch = self._torch
        assert torch is not None
        kind = type(tensor)
        if (kind is not torch.Tensor and kind is not torch.nn.Parameter) or tensor.is_quantized:
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
        raw = b"" if tensor.numel() == 0 else _raw(torch, tensor)
        self._add(raw)
        return [_TENSOR, str(tensor.dtype)[6:], tuple(tensor.shape), order]

    def _add(self, raw: memoryview | bytes) -> None:
        if not raw:
            return
        if gap := -self.size % ALIGNMENT:
            self.parts.append(_PAD[:gap])
            self.size += gap
        self.parts.append(raw)
        self.size += len(raw)


def _raw(torch: Any, tensor: Any) -> memoryview:
    flat = tensor.view(-1)
    if tensor.dtype is not torch.uint8:
        flat = flat.view(torch.uint8)
    return memoryview(flat.numpy())


def _dense(array: Any, strides: Any, dims: int) -> tuple[list[int], Any]:
    """The dimensions in the order in which they lie in memory, and the array in that order."""
    order = sorted(range(dims), key=lambda dim: -strides[dim])
    return order, (
        array.transpose(order) if isinstance(array, np.ndarray) else array.permute(order)
    )


def pack(batch: Any) -> Packed:
    """A batch as structure and parts; no array is copied that lies dense in memory.

    Raises:
        NotPortableError: it holds something that cannot be sent.
    """
    packer = _Packer()
    structure = packer.node(batch)
    return Packed(structure, packer.parts, packer.size)


class _Unpacker:
    def __init__(self, body: memoryview | np.ndarray[Any, Any], size: int) -> None:
        self._body = body
        self._size = size
        self._at = 0

    def value(self, node: Any) -> Any:
        kind = node[0]
        if kind == _ARRAY:
            return self._array(node)
        if kind == _TENSOR:
            return self._tensor(node)
        if kind == _PLAIN:
            return node[1]
        if kind == _LIST:
            return [self.value(one) for one in node[1]]
        if kind == _TUPLE:
            return tuple([self.value(one) for one in node[1]])
        if kind == _DICT:
            return {key: self.value(one) for key, one in node[1]}
        if kind == _NAMED:
            return _named(node[1])(*[self.value(one) for one in node[2]])
        if kind == _SCALAR:
            return self._array(node[1])[()]
        if kind == _BIG:
            return int(node[1])
        if kind == _COMPLEX:
            return complex(node[1], node[2])
        raise FrameError(f"a batch with a node of kind {kind!r}")

    def _take(self, size: int) -> int:
        if size == 0:
            return self._at
        self._at += -self._at % ALIGNMENT
        at = self._at
        self._at += size
        if size < 0 or self._at > self._size:
            raise FrameError(f"a batch whose arrays need more than its {self._size} bytes")
        return at

    def _array(self, node: Any) -> np.ndarray[Any, Any]:
        _, dtype_name, shape, order = node
        dtype = np.dtype(dtype_name)
        if dtype.hasobject:
            raise FrameError(f"a batch with an array of dtype {dtype_name!r}")
        at = self._take(_size(shape, dtype.itemsize))
        array: np.ndarray[Any, Any]
        if (size := _size(shape, dtype.itemsize)) == 0:
            array = np.empty(shape, dtype)
        else:
            array = np.ndarray(shape, dtype, self._body, at)
            if size < COPIED_BELOW:
                array = array.copy()
        return array if order is None else array.transpose(_inverse(order))

    def _tensor(self, node: Any) -> Any:
        import torch

        _, name, shape, order = node
        dtype = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype):
            raise FrameError(f"a batch with a tensor of dtype {name!r}")
        size = _size(shape, dtype.itemsize)
        at = self._take(size)
        if size == 0:
            tensor = torch.empty(shape, dtype=dtype)
        else:
            count = size // dtype.itemsize
            tensor = torch.frombuffer(self._body, dtype=dtype, count=count, offset=at).view(shape)
            if size < COPIED_BELOW:
                tensor = tensor.clone()
        return tensor if order is None else tensor.permute(_inverse(order))


def _size(shape: Any, itemsize: int) -> int:
    size = itemsize
    for length in shape:
        if not isinstance(length, int) or length < 0:
            raise FrameError(f"a batch with an array of shape {shape!r}")
        size *= length
    return size


def _inverse(order: list[int]) -> list[int]:
    if sorted(order) != list(range(len(order))):
        raise FrameError(f"a batch with dimensions in the order {order!r}")
    return sorted(range(len(order)), key=order.__getitem__)


def _named(name: str) -> Any:
    """A named tuple's class, if the program has loaded it: nothing is imported on a peer's word."""
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, tuple) or not hasattr(found, "_fields"):
        raise NotPortableError(f"the batch holds a named tuple {name} that is not known here")
    return found


def unpack(structure: Any, body: memoryview | np.ndarray[Any, Any], size: int) -> Any:
    """The batch again; its arrays lie in ``body``, which lives as long as any of them.

    Raises:
        FrameError: the structure is not one that `pack` makes, or asks for more than the body.
        NotPortableError: a named tuple that this process does not know.
    """
    try:
        return _Unpacker(body, size).value(structure)
    except (TypeError, ValueError, LookupError, RuntimeError) as error:
        raise FrameError(f"a batch that cannot be read: {error}") from error
