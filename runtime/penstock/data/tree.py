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

import msgpack
import numpy as np

from penstock.data.errors import FrameError, NotPortableError

ALIGNMENT: Final = 64
COPIED_BELOW: Final = 4096
"""Smaller arrays are copied out: a list of labels kept must not keep whole batches."""
MAX_DEPTH: Final = 64

_PADS = [bytes(count) for count in range(ALIGNMENT)]
_SCALARS = (str, bytes, float, bool, type(None))
_PLAIN, _LIST, _TUPLE, _DICT, _NAMED, _ARRAY, _TENSOR, _SCALAR, _BIG, _COMPLEX = range(10)


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch ready to be sent: ``parts`` are contiguous buffers of together ``size`` bytes."""

    structure: bytes
    parts: list[Any]
    size: int


class _Packer:
    def __init__(self) -> None:
        self.parts: list[Any] = []
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
        name = _NAMES.get(array.dtype) or _name_of(array.dtype)
        order = None
        if not array.flags.c_contiguous:
            order, array = _dense(array, array.strides, array.ndim)
            array = np.ascontiguousarray(array)
        if array.dtype.kind in "mM":  # memoryviews know no times
            self._add(array.view(np.int64), array.nbytes)
        elif array.dtype.kind in "SU":
            self._add(array.reshape(-1).view(np.uint8), array.nbytes)
        else:
            self._add(array, array.nbytes)
        return [_ARRAY, name, array.shape, order]

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
        if tensor.numel():
            self._add(_raw(torch, tensor), tensor.nbytes)
        return [_TENSOR, str(tensor.dtype)[6:], tuple(tensor.shape), order]

    def _add(self, raw: Any, size: int) -> None:
        if not size:
            return
        if gap := -self.size % ALIGNMENT:
            self.parts.append(_PADS[gap])
            self.size += gap
        self.parts.append(raw)
        self.size += size


_NAMES: dict[np.dtype[Any], str] = {}
_MAX_NAMES = 1000


def _name_of(dtype: np.dtype[Any]) -> str:
    """How an array's type is written; remembered, because NumPy spells it out each time."""
    if dtype.kind not in "biufcmMSU":
        raise NotPortableError(f"the batch holds an array of dtype {dtype}")
    if len(_NAMES) < _MAX_NAMES:
        _NAMES[dtype] = dtype.str
    return dtype.str


def _raw(torch: Any, tensor: Any) -> Any:
    try:
        return tensor.numpy()
    except TypeError:  # a type that NumPy does not have
        return tensor.view(-1).view(torch.uint8).numpy()


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
    return Packed(msgpack.packb(structure), packer.parts, packer.size)


class Layout:
    """The structure of batches, read and checked once for all that have the same.

    A leaf is ``(kind, type, shape, order, offset, bytes)``.
    """

    def __init__(self, structure: bytes) -> None:
        """Raises FrameError where `pack` makes no such structure."""
        self.structure = structure
        self._end = 0
        try:
            content = msgpack.unpackb(structure, strict_map_key=False)
            self._root = self._read(content)
        except (TypeError, ValueError, LookupError, msgpack.UnpackException) as error:
            raise FrameError(f"a batch whose structure cannot be read: {error}") from error

    def _read(self, node: Any) -> Any:
        """The node with its leaves resolved."""
        kind = node[0]
        if kind == _ARRAY:
            dtype = np.dtype(node[1])
            if dtype.hasobject or dtype.itemsize == 0:
                raise FrameError(f"a batch with an array of dtype {node[1]!r}")
            return self._leaf(kind, dtype, dtype.itemsize, node[2], node[3])
        if kind == _TENSOR:
            import torch

            tensor_type = getattr(torch, node[1], None)
            if not isinstance(tensor_type, torch.dtype):
                raise FrameError(f"a batch with a tensor of dtype {node[1]!r}")
            return self._leaf(kind, tensor_type, tensor_type.itemsize, node[2], node[3])
        if kind in (_LIST, _TUPLE):
            return kind, [self._read(one) for one in node[1]]
        if kind == _DICT:
            return kind, [(key, self._read(one)) for key, one in node[1]]
        if kind == _NAMED:
            return kind, _named(node[1]), [self._read(one) for one in node[2]]
        if kind == _SCALAR:
            return kind, self._read(node[1])
        if kind in (_PLAIN, _BIG, _COMPLEX):
            return node
        raise FrameError(f"a batch with a node of kind {kind!r}")

    def _leaf(self, kind: int, dtype: Any, itemsize: int, shape: Any, order: Any) -> Any:
        size = _size(shape, itemsize)
        if size:
            self._end += -self._end % ALIGNMENT
        at = self._end
        self._end += size
        inverse = None if order is None else _inverse(order, len(shape))
        return kind, dtype, tuple(shape), inverse, at, size

    def batch(self, body: memoryview | np.ndarray[Any, Any], size: int) -> Any:
        """The batch again; its arrays lie in ``body``, which lives as long as any of them.

        Raises:
            FrameError: the arrays need more than the body's ``size`` bytes.
        """
        if self._end > size:
            raise FrameError(f"a batch whose arrays need {self._end} bytes and has {size}")
        return _value(self._root, body)


def _value(node: Any, body: Any) -> Any:
    kind = node[0]
    if kind == _ARRAY:
        _, dtype, shape, order, at, size = node
        if not size:
            array = np.empty(shape, dtype)
        else:
            array = np.ndarray(shape, dtype, body, at)
            if size < COPIED_BELOW:
                array = array.copy()
        return array if order is None else array.transpose(order)
    if kind == _TENSOR:
        return _tensor_of(node, body)
    if kind == _PLAIN:
        return node[1]
    if kind == _LIST:
        return [_value(one, body) for one in node[1]]
    if kind == _TUPLE:
        return tuple([_value(one, body) for one in node[1]])
    if kind == _DICT:
        return {key: _value(one, body) for key, one in node[1]}
    if kind == _NAMED:
        return node[1](*[_value(one, body) for one in node[2]])
    if kind == _SCALAR:
        return _value(node[1], body)[()]
    if kind == _BIG:
        return int(node[1])
    return complex(node[1], node[2])


def _tensor_of(node: Any, body: Any) -> Any:
    import torch

    _, dtype, shape, order, at, size = node
    if not size:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        count = size // dtype.itemsize
        tensor = torch.frombuffer(body, dtype=dtype, count=count, offset=at).view(shape)
        if size < COPIED_BELOW:
            tensor = tensor.clone()
    return tensor if order is None else tensor.permute(order)


def _size(shape: Any, itemsize: int) -> int:
    size = itemsize
    for length in shape:
        if not isinstance(length, int) or length < 0:
            raise FrameError(f"a batch with an array of shape {shape!r}")
        size *= length
    return size


def _inverse(order: list[int], dims: int) -> list[int]:
    if sorted(order) != list(range(dims)):
        raise FrameError(f"a batch with dimensions in the order {order!r}")
    return sorted(range(dims), key=order.__getitem__)


def _named(name: str) -> Any:
    """A named tuple's class, if the program has loaded it: nothing is imported on a peer's word."""
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, tuple) or not hasattr(found, "_fields"):
        raise NotPortableError(f"the batch holds a named tuple {name} that is not known here")
    return found


def unpack(structure: bytes, body: memoryview | np.ndarray[Any, Any], size: int) -> Any:
    """The batch again, as by `Layout`.

    Raises:
        FrameError: the structure is not one that `pack` makes, or asks for more than the body.
        NotPortableError: a named tuple that this process does not know.
    """
    return Layout(structure).batch(body, size)
