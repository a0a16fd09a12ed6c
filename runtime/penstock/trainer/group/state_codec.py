"""Training state as bytes and back, without pickle.

A state is what ``state_dict()`` gives: nested dicts, lists and tuples of numbers, strings, None and
tensors. It becomes a small msgpack header and the raw bytes of its tensors, which is the form in
which it goes to another member of the group and into a checkpoint. What has no such form (a
function, an object) is refused with the path at which it stands.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
import torch

from penstock.trainer.group.host_copies import Copier, Copies, copy_at_once

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
        parts = [tensor_bytes(tensor) for tensor in self.tensors]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def pack(state: Any, copier: Copier | None = None, host: Copier | None = None) -> PackedState:
    """A state as a header and tensors; the tensors are copies.

    Args:
        state: nested, as the module says.
        copier: makes copies of what is on the devices that it carries from.
        host: makes the copies of a state that is on the host as a whole.

    Raises:
        StateError: something in it has no plain form.
    """
    tensors: list[torch.Tensor] = []
    content = _pack(state, tensors, "state")
    shapes = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in tensors]
    header: bytes = msgpack.packb({"content": content, "tensors": shapes})
    if copier is not None and any(copier.carries(tensor.device) for tensor in tensors):
        copies = _copies(tensors, copier)
    elif host is not None and all(host.carries(tensor.device) for tensor in tensors):
        copies = host(tensors)
    else:
        return PackedState(header, [copy_at_once(tensor) for tensor in tensors])
    packed = PackedState(header, copies.tensors, copies.wait)
    weakref.finalize(packed, copies.release).atexit = False
    return packed


def _copies(tensors: Sequence[torch.Tensor], copier: Copier) -> Copies:
    """Copies of all tensors, of which a copier makes those that it carries."""
    away = [place for place, tensor in enumerate(tensors) if copier.carries(tensor.device)]
    copies = copier([tensors[place] for place in away])
    carried = dict(zip(away, copies.tensors, strict=True))
    found = [
        carried[place] if place in carried else copy_at_once(tensor)
        for place, tensor in enumerate(tensors)
    ]
    return Copies(found, copies.wait, copies.release)


def payload_bytes(header: bytes) -> int:
    """How many bytes of tensors belong to a header. Raises StateError."""
    return sum(part_bytes(header))


def part_bytes(header: bytes) -> list[int]:
    """How many bytes each tensor of a header has, in order. Raises StateError."""
    return [size for _, _, size in _layout(_read_header(header))]


def unpack(header: bytes, flat: torch.Tensor) -> Any:
    """The state that `pack` wrote; ``flat`` is its `PackedState.flat`.

    Raises:
        StateError: header and tensors do not fit each other, or the header is damaged.
    """
    parts, offset = [], 0
    for size in part_bytes(header):
        raw = flat[offset : offset + size]
        if raw.numel() != size:
            raise StateError(f"tensors: {flat.numel()} bytes, more are needed")
        parts.append(raw.clone())
        offset += size
    if offset != flat.numel():
        raise StateError(f"tensors: {flat.numel()} bytes, {offset} are needed")
    return assemble(header, parts)


def assemble(header: bytes, parts: Sequence[torch.Tensor]) -> Any:
    """The state that `pack` wrote, of its tensors' own memory.

    Args:
        header: as `PackedState` has it.
        parts: the bytes of each tensor, uint8 of shape ``(bytes,)``; they become the state's.

    Raises:
        StateError: header and tensors do not fit each other, or the header is damaged.
    """
    content = _read_header(header)
    layout = _layout(content)
    if [size for _, _, size in layout] != [part.numel() for part in parts]:
        raise StateError("tensors: they are not those of the header")
    tensors = [
        part.view(dtype).reshape(shape)
        for part, (dtype, shape, _) in zip(parts, layout, strict=True)
    ]
    return _unpack(content["content"], tensors)


def _pack(value: Any, tensors: list[torch.Tensor], path: str) -> Any:
    if isinstance(value, torch.Tensor):
        if str(value.dtype).removeprefix("torch.") not in _DTYPES:
            raise StateError(f"{path}: a tensor of type {value.dtype} has no plain form")
        tensors.append(value.detach())
        return msgpack.ExtType(_TENSOR, msgpack.packb(len(tensors) - 1))
    if isinstance(value, np.ndarray):
        tensors.append(torch.from_numpy(np.ascontiguousarray(value)))
        return msgpack.ExtType(_ARRAY, msgpack.packb(len(tensors) - 1))
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


def tensor_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that lies in one piece as uint8 of shape ``(bytes,)``: the same memory."""
    return tensor.reshape(-1).view(torch.uint8)
