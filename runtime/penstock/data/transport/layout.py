"""How batches are laid out: read and checked once for all that have the same structure.

A structure comes from the network: nothing of it is believed before it is checked, and nothing is
imported or called on its word. What is checked is turned into functions, so that a batch costs
little more than making its arrays. Arrays of one type and shape that follow one another, as those
of a batch of many features do, are made together, as the rows of one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import msgpack
import numpy as np

from penstock.data.errors import FrameError, NotPortableError
from penstock.data.transport.batch_codec import (
    ALIGNMENT,
    ARRAY,
    BIG,
    COMPLEX,
    DICT,
    LIST,
    NAMED,
    PLAIN,
    SCALAR,
    TENSOR,
    TEXTS,
    TUPLE,
)

COPIED_BELOW: Final = 4096
"""Smaller arrays are copied out: a list of labels kept must not keep whole batches."""

_Build = Callable[[list[Any]], Any]
"""Makes a value of the batch's arrays."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """An array or tensor; ``torch_type`` for a tensor, ``apart`` if NumPy cannot hand it over."""

    dtype: np.dtype[Any]
    torch_type: Any
    apart: bool
    shape: tuple[int, ...]
    order: tuple[int, ...] | None
    size: int


class Layout:
    """The layout of one structure."""

    def __init__(self, structure: bytes) -> None:
        """Raises FrameError where `batch_codec.pack` makes no such structure."""
        self.structure = structure
        self._leaves: list[_Leaf] = []
        try:
            content = msgpack.unpackb(structure, strict_map_key=False)
            self._build = self._read(content)
        except (TypeError, ValueError, LookupError, msgpack.UnpackException) as error:
            raise FrameError(f"a batch whose structure cannot be read: {error}") from error
        self._runs: list[tuple[_Leaf, int, int]] = []  # leaf, how many, where the first begins
        self._end = 0
        self.tensor_bytes = sum(leaf.size for leaf in self._leaves if leaf.torch_type is not None)
        for leaf, same in groupby(self._leaves):
            count = len(list(same))
            self._end += -self._end % ALIGNMENT if leaf.size else 0
            self._runs.append((leaf, count, self._end))
            self._end += (count - 1) * _aligned(leaf.size) + leaf.size

    def batch(self, body: Any, size: int) -> Any:
        """The batch again; its arrays lie in ``body``, which lives as long as any of them.

        A body is a buffer, or a tensor of bytes in pinned memory. In that only tensors lie, which
        share its storage: by that the memory's owner knows of copies from them that are under way.
        NumPy arrays are copied out, since nobody would know of a copy from one of them.

        Raises:
            FrameError: the arrays need more than the body's ``size`` bytes.
        """
        if self._end > size:
            raise FrameError(f"a batch whose arrays need {self._end} bytes and has {size}")
        arrays: list[Any] = []
        make = _pinned_arrays if hasattr(body, "untyped_storage") else _arrays
        for leaf, count, at in self._runs:
            arrays += make(leaf, count, at, body)
        return self._build(arrays)

    # ------------------------------------------------------------------ reading a structure

    def _read(self, node: Any) -> _Build:
        kind = node[0]
        if kind in (ARRAY, TENSOR):
            at = len(self._leaves)
            self._leaves.append(_leaf(*node))
            return lambda arrays: arrays[at]
        if kind in (LIST, TUPLE, DICT, NAMED):
            return self._container(*node)
        if kind == TEXTS:
            return self._texts(*node)
        if kind == PLAIN:
            value = node[1]
        elif kind == BIG:
            value = int(node[1])
        elif kind == COMPLEX:
            value = complex(node[1], node[2])
        elif kind == SCALAR:
            inner = self._read(node[1])
            return lambda arrays: inner(arrays)[()]
        else:
            raise FrameError(f"a batch with a node of kind {kind!r}")
        return lambda arrays: value

    def _texts(self, kind: int, together: Any, *nodes: Any) -> _Build:
        lengths, characters = (self._read(node) for node in nodes if node[0] == ARRAY)
        make: Callable[[list[Any]], Any] = tuple if together else list
        for leaf, wanted in zip(self._leaves[-2:], (np.int64, np.uint8), strict=True):
            if leaf.dtype != wanted or leaf.torch_type is not None or len(leaf.shape) != 1:
                raise FrameError(f"a batch whose texts are {leaf.dtype} of shape {leaf.shape}")
        return lambda arrays: make(_divided(lengths(arrays), characters(arrays)))

    def _container(self, kind: int, *content: Any) -> _Build:
        make: Callable[[list[Any]], Any]
        if kind == DICT:
            keys, nodes = content
            if not isinstance(keys, list) or len(keys) != len(nodes):
                raise FrameError(f"a batch with a dict of {len(keys)} keys, {len(nodes)} values")
            hash(tuple(keys))
            # One of three makers, chosen by kind.
            make = lambda values: dict(zip(keys, values, strict=True))  # noqa: E731
        elif kind == NAMED:
            name, nodes = content
            named = _named(name)
            make = lambda values: named(*values)  # noqa: E731  one of three makers, chosen by kind
        else:
            (nodes,) = content
            make = tuple if kind == TUPLE else list
        first = len(self._leaves)
        parts = [self._read(node) for node in nodes]
        stop = len(self._leaves)
        if all(node[0] in (ARRAY, TENSOR) for node in nodes):
            return lambda arrays: make(arrays[first:stop])
        return lambda arrays: make([part(arrays) for part in parts])


def _leaf(kind: int, name: Any, shape: Any, order: Any) -> _Leaf:
    torch_type, apart = None, False
    if kind == ARRAY:
        dtype = np.dtype(name)
        if dtype.hasobject or dtype.itemsize == 0:
            raise FrameError(f"a batch with an array of dtype {name!r}")
    else:
        import torch

        torch_type = getattr(torch, name, None)
        if not isinstance(torch_type, torch.dtype):
            raise FrameError(f"a batch with a tensor of dtype {name!r}")
        try:
            dtype = torch.empty(0, dtype=torch_type).numpy().dtype
        except TypeError:
            dtype, apart = np.dtype(f"V{torch_type.itemsize}"), True
    size = dtype.itemsize
    for length in shape:
        if not isinstance(length, int) or length < 0:
            raise FrameError(f"a batch with an array of shape {shape!r}")
        size *= length
    apart = apart or (torch_type is not None and size == 0)
    if order is not None and sorted(order) != list(range(len(shape))):
        raise FrameError(f"a batch with dimensions in the order {order!r}")
    inverse = None if order is None else tuple(sorted(range(len(shape)), key=order.__getitem__))
    return _Leaf(dtype, torch_type, apart, tuple(shape), inverse, size)


def _divided(lengths: np.ndarray[Any, Any], characters: np.ndarray[Any, Any]) -> list[str]:
    """Texts of so many characters each, which are together in UTF-8.

    Raises:
        FrameError: they are not.
    """
    try:
        text = characters.tobytes().decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"a batch whose texts cannot be read: {error}") from error
    if (lengths < 0).any() or int(lengths.sum()) != len(text):
        raise FrameError(f"a batch whose texts have {len(text)} characters, and not what is said")
    ends = np.cumsum(lengths).tolist()
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _named(name: str) -> Any:
    """A named tuple's class, if the program has loaded it: nothing is imported on a peer's word."""
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, tuple) or not hasattr(found, "_fields"):
        raise NotPortableError(f"the batch holds a named tuple {name} that is not known here")
    return found


# ---------------------------------------------------------------------- making arrays


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT


def _arrays(leaf: _Leaf, count: int, at: int, body: Any) -> list[Any]:
    """So many equal arrays or tensors, the first of which begins at ``at``."""
    dtype, shape = leaf.dtype, leaf.shape
    if leaf.apart:
        return [_apart(leaf, at + turn * _aligned(leaf.size), body) for turn in range(count)]
    arrays: list[Any]
    if not leaf.size:
        arrays = [np.empty(shape, dtype) for _ in range(count)]
    elif count == 1 or not 0 < len(shape) < 32:  # the rows of a vector would be scalars
        step = _aligned(leaf.size)
        arrays = [np.ndarray(shape, dtype, body, at + turn * step) for turn in range(count)]
    else:
        first = np.ndarray(shape, dtype, body, at)
        strides = (_aligned(leaf.size), *first.strides)
        arrays = list(np.ndarray((count, *shape), dtype, body, at, strides))
    if 0 < leaf.size < COPIED_BELOW:
        arrays = [array.copy() for array in arrays]
    if leaf.torch_type is not None:
        import torch

        arrays = [torch.from_numpy(array) for array in arrays]
        if leaf.order is not None:
            return [tensor.permute(leaf.order) for tensor in arrays]
    elif leaf.order is not None:
        return [array.transpose(leaf.order) for array in arrays]
    return arrays


def _pinned_arrays(leaf: _Leaf, count: int, at: int, base: Any) -> list[Any]:
    """As `_arrays`, of a body that is a tensor."""
    if leaf.torch_type is None:
        arrays = _arrays(leaf, count, at, base.numpy())
        return arrays if leaf.size < COPIED_BELOW else [array.copy("K") for array in arrays]
    if not leaf.size:
        return _arrays(leaf, count, at, b"")
    import torch

    storage, step = base.untyped_storage(), _aligned(leaf.size)
    strides = torch.empty(leaf.shape, dtype=leaf.torch_type, device="meta").stride()
    tensors: list[Any] = []
    for turn in range(count):
        offset = (base.storage_offset() + at + turn * step) // leaf.torch_type.itemsize
        # Not a view, whose changes PyTorch would take for changes of all other tensors here.
        tensor = torch.empty(0, dtype=leaf.torch_type)
        tensor.set_(storage, offset, leaf.shape, strides)
        if leaf.size < COPIED_BELOW:
            tensor = tensor.clone()
        tensors.append(tensor if leaf.order is None else tensor.permute(leaf.order))
    return tensors


def _apart(leaf: _Leaf, at: int, body: Any) -> Any:
    """A tensor of a type that NumPy does not have, or an empty one (it drops strides)."""
    import torch

    if not leaf.size:
        tensor = torch.empty(leaf.shape, dtype=leaf.torch_type)
    else:
        count = leaf.size // leaf.torch_type.itemsize
        flat = torch.frombuffer(body, dtype=leaf.torch_type, count=count, offset=at)
        tensor = flat.view(leaf.shape)
        if leaf.size < COPIED_BELOW:
            tensor = tensor.clone()
    return tensor if leaf.order is None else tensor.permute(leaf.order)


def unpack(structure: bytes, body: memoryview | np.ndarray[Any, Any], size: int) -> Any:
    """One batch on its own, as by `Layout`.

    Raises:
        FrameError: the structure is not one that `pack` makes, or asks for more than the body.
        NotPortableError: a named tuple that this process does not know.
    """
    return Layout(structure).batch(body, size)
