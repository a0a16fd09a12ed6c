"""Training state as bytes and back, without pickle.

A state is what ``state_dict()`` gives: nested dicts, lists and tuples of numbers, strings, None and
tensors. It becomes a small msgpack header and the raw bytes of its tensors, which is the form in
which it goes to another member of the group and into a checkpoint. What has no such form (a
function, an object) is refused with the path at which it stands.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
import torch

from penstock.trainer.group.host_copies import Copier, copy_at_once

_TENSOR: Final = 1
_TUPLE: Final = 2
_ARRAY: Final = 3
_DTYPES: Final = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}


class StateError(Exception):
    """A state that cannot be written down or read; names the place."""


@dataclass(frozen=True)
class PackedState:
    """A header (msgpack) and the tensors that it refers to, in order, on the CPU."""

    header: bytes
    tensors: list[torch.Tensor]
    """To be read after `wait`."""
    wait: Callable[[], None] = lambda: None
    """Returns when the tensors hold their values."""

    @property
    def payload_bytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    def flat(self) -> torch.Tensor:
        """All tensors behind one another: uint8 of shape ``(payload_bytes,)``."""
        self.wait()
        parts = [_as_bytes(tensor) for tensor in self.tensors]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def pack(state: Any, copier: Copier | None = None) -> PackedState:
    """A state as a header and tensors; the tensors are copies.

    Args:
        state: nested, as the module says.
        copier: makes copies of what is on the devices that it carries from.

    Raises:
        StateError: something in it has no plain form.
    """
    collected = _Collected(copier)
    content = _pack(state, collected, "state")
    shapes = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in collected.tensors]
    header: bytes = msgpack.packb({"content": content, "tensors": shapes})
    if copier is None or not collected.left:
        return PackedState(header, collected.tensors)
    copies = copier([collected.tensors[place] for place in collected.left])
    for place, copy in zip(collected.left, copies.tensors, strict=True):
        collected.tensors[place] = copy
    packed = PackedState(header, collected.tensors, copies.wait)
    weakref.finalize(packed, copies.release).atexit = False
    return packed


class _Collected:
    """The tensors of a state in order: copies, but of those that are left to a copier."""

    def __init__(self, copier: Copier | None) -> None:
        self._copier = copier
        self.tensors: list[torch.Tensor] = []
        self.left: list[int] = []

    def add(self, tensor: torch.Tensor) -> int:
        """Take a tensor in; returns its place."""
        if self._copier is not None and self._copier.carries(tensor.device):
            self.left.append(len(self.tensors))
        else:
            tensor = copy_at_once(tensor)
        self.tensors.append(tensor)
        return len(self.tensors) - 1


def payload_bytes(header: bytes) -> int:
    """How many bytes of tensors belong to a header. Raises StateError."""
    return sum(size for _, _, size in _layout(_read_header(header)))


def unpack(header: bytes, flat: torch.Tensor) -> Any:
    """The state that `pack` wrote; ``flat`` is its `PackedState.flat`.

    Raises:
        StateError: header and tensors do not fit each other, or the header is damaged.
    """
    content = _read_header(header)
    tensors, offset = [], 0
    for dtype, shape, size in _layout(content):
        raw = flat[offset : offset + size]
        if raw.numel() != size:
            raise StateError(f"tensors: {flat.numel()} bytes, more are needed")
        tensors.append(raw.clone().view(dtype).reshape(shape))
        offset += size
    if offset != flat.numel():
        raise StateError(f"tensors: {flat.numel()} bytes, {offset} are needed")
    return _unpack(content["content"], tensors)


def _pack(value: Any, tensors: _Collected, path: str) -> Any:
    if isinstance(value, torch.Tensor):
        if str(value.dtype).removeprefix("torch.") not in _DTYPES:
            raise StateError(f"{path}: a tensor of type {value.dtype} has no plain form")
        return msgpack.ExtType(_TENSOR, msgpack.packb(tensors.add(value.detach())))
    if isinstance(value, np.ndarray):
        place = tensors.add(torch.from_numpy(np.ascontiguousarray(value)))
        return msgpack.ExtType(_ARRAY, msgpack.packb(place))
    if isinstance(value, tuple):
        parts = [_pack(part, tensors, f"{path}[{i}]") for i, part in enumerate(value)]
        return msgpack.ExtType(_TUPLE, msgpack.packb(parts))
    if isinstance(value, list):
        return [_pack(part, tensors, f"{path}[{i}]") for i, part in enumerate(value)]
    if isinstance(value, dict):
        if not all(isinstance(key, str | int) for key in value):
            raise StateError(f"{path}: the keys of a map must be strings or integers")
        return {key: _pack(part, tensors, f"{path}.{key}") for key, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise StateError(f"{path}: a {type(value).__name__} has no plain form")


def _unpack(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, msgpack.ExtType):
        inner = msgpack.unpackb(value.data, strict_map_key=False)
        if value.code == _TENSOR:
            return tensors[inner]
        if value.code == _ARRAY:
            return tensors[inner].numpy()
        if value.code == _TUPLE:
            return tuple(_unpack(part, tensors) for part in inner)
        raise StateError(f"an extension of unknown code {value.code}")
    if isinstance(value, list):
        return [_unpack(part, tensors) for part in value]
    if isinstance(value, dict):
        return {key: _unpack(part, tensors) for key, part in value.items()}
    return value


def _read_header(header: bytes) -> dict[str, Any]:
    try:
        content = msgpack.unpackb(header, strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise StateError(f"header: no msgpack: {error}") from error
    if not isinstance(content, dict) or not {"content", "tensors"} <= content.keys():
        raise StateError("header: it does not describe a state")
    return content


def _layout(content: dict[str, Any]) -> list[tuple[torch.dtype, list[int], int]]:
    layout = []
    for name, shape in content["tensors"]:
        dtype = _DTYPES.get(name)
        if dtype is None:
            raise StateError(f"tensors: unknown type {name!r}")
        count = 1
        for extent in shape:
            count *= int(extent)
        layout.append((dtype, [int(extent) for extent in shape], count * dtype.itemsize))
    return layout


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)
