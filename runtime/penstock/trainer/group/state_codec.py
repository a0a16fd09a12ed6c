"""Training state as bytes and back, without pickle.

A state is what ``state_dict()`` gives: nested dicts, lists and tuples of numbers, strings, None and
tensors. It becomes a small msgpack header and the raw bytes of its tensors, which is the form in
which it goes to another member of the group and into a checkpoint. What has no such form (a
function, an object) is refused with the path at which it stands.

To others it goes in pieces, so that nobody holds it twice: all members broadcast the same pieces in
the same order. Who sends has one piece beside its tensors; who receives has one beside the memory
of the tensors that it receives, which become the state's. Members of a release before this know one
piece alone, which is the whole.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgpack
import numpy as np
import torch

from penstock.trainer.group.host_copies import Copier, copy_at_once

PIECE_BYTES: Final = 64 << 20
"""Of a state on its way to another member, but for the last piece."""
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


class NoRoomError(Exception):
    """There is no memory for a copy; ``size``: the bytes that it would take."""

    def __init__(self, size: int) -> None:
        super().__init__(f"no memory for a copy of {size} bytes")
        self.size = size


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class PackedState:
    """A header (msgpack) and the tensors that it refers to, in order.

    Those that `pack` makes are on the CPU, each in one piece.
    """

    header: bytes
    tensors: list[torch.Tensor]
    """To be read after `wait`."""
    wait: Callable[[], None] = _nothing
    """Returns when the tensors hold their values."""

    @property
    def payload_bytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(_size(tensor) for tensor in self.tensors)


Broadcast = Callable[[torch.Tensor], None]
"""Copies a tensor on the host of the first member to all, in place."""


class CopyRoom(Protocol):
    """What says whether there is memory for copies."""

    def take(self, size: int) -> bool:
        """Count so many bytes as taken; False: there are not as many."""

    def give_back(self, size: int) -> None:
        """They are free again."""


def pack(
    state: Any,
    copier: Copier | None = None,
    host: Copier | None = None,
    room: CopyRoom | None = None,
) -> PackedState:
    """A state as a header and tensors; the tensors are copies.

    Args:
        state: nested, as the module says.
        copier: makes copies of what is on the devices that it carries from.
        host: makes the copies of a state that is on the host as a whole.
        room: is asked for the memory of all that these have no place for.

    Raises:
        NoRoomError: there is none; what was begun is given up.
        StateError: something in it has no plain form.
    """
    packed = lend(state)
    tensors = packed.tensors
    carrier = _carrier(tensors, copier, host)
    away = [place for place, t in enumerate(tensors) if carrier and carrier.carries(t.device)]
    copies = carrier([tensors[place] for place in away]) if carrier and away else None
    carried = dict(zip(away, copies.tensors, strict=True)) if copies else {}
    fresh = sum(_size(t) for place, t in enumerate(tensors) if place not in carried)
    taken = room is None or room.take(fresh)
    try:
        if not taken:
            raise NoRoomError(fresh)
        found = [
            carried[place] if place in carried else copy_at_once(tensor)
            for place, tensor in enumerate(tensors)
        ]
    except BaseException:
        if room is not None and taken:
            room.give_back(fresh)
        if copies is not None:
            copies.release()
        raise
    made = PackedState(packed.header, found, copies.wait if copies else _nothing)
    if copies is not None:
        weakref.finalize(made, copies.release).atexit = False
    if room is not None and fresh:
        weakref.finalize(made, room.give_back, fresh).atexit = False
    return made


def lend(state: Any) -> PackedState:
    """A state as a header and its own tensors: not copies, wherever and however they lie.

    Raises:
        StateError: something in it has no plain form.
    """
    tensors: list[torch.Tensor] = []
    content = _pack(state, tensors, "state")
    shapes = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in tensors]
    header: bytes = msgpack.packb({"content": content, "tensors": shapes})
    return PackedState(header, tensors)


def _carrier(
    tensors: Sequence[torch.Tensor], copier: Copier | None, host: Copier | None
) -> Copier | None:
    """Who makes copies of what it carries from; the rest is copied at once."""
    if copier is not None and any(copier.carries(tensor.device) for tensor in tensors):
        return copier
    on_host = host is not None and all(host.carries(tensor.device) for tensor in tensors)
    return host if on_host else None


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def part_bytes(header: bytes) -> list[int]:
    """How many bytes each tensor of a header has, in order. Raises StateError."""
    return [size for _, _, size in _layout(_read_header(header))]


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


def send(state: PackedState, broadcast: Broadcast, piece_bytes: int = PIECE_BYTES) -> None:
    """Give a state to all others; ``piece_bytes``: of each but the last, 0: all in one.

    Raises what ``broadcast`` does.
    """
    state.wait()
    pieces = _pieces(state.payload_bytes, piece_bytes)
    piece, at = next(pieces, None), 0
    for tensor in state.tensors:
        for part in host_pieces(tensor, PIECE_BYTES):
            done = 0
            while done < part.numel():
                assert piece is not None, "as long as the tensors"
                count = min(piece.numel() - at, part.numel() - done)
                piece[at : at + count].copy_(part[done : done + count])
                at, done = at + count, done + count
                if at == piece.numel():
                    broadcast(piece)
                    piece, at = next(pieces, None), 0


def receive(
    header: bytes, broadcast: Broadcast, piece_bytes: int = PIECE_BYTES
) -> list[torch.Tensor]:
    """The tensors that belong to a header: uint8 of shape ``(bytes,)`` each.

    Raises what ``broadcast`` does; StateError: the header is damaged.
    """
    parts = [torch.empty(size, dtype=torch.uint8) for size in part_bytes(header)]
    left = iter(parts)
    part, at = torch.empty(0, dtype=torch.uint8), 0
    for piece in _pieces(sum(each.numel() for each in parts), piece_bytes):
        broadcast(piece)
        done = 0
        while done < piece.numel():
            if at == part.numel():
                part, at = next(left), 0
                continue
            count = min(part.numel() - at, piece.numel() - done)
            part[at : at + count].copy_(piece[done : done + count])
            at, done = at + count, done + count
    return parts


def _pieces(size: int, piece_bytes: int) -> Iterator[torch.Tensor]:
    """Room for each piece of so many bytes: the same memory again and again."""
    most = min(size, piece_bytes or size)
    room = torch.empty(most, dtype=torch.uint8)
    for at in range(0, size, most or 1):
        yield room[: min(most, size - at)]


def copy_of(state: Any) -> Any:
    """A state whose tensors and arrays are copies of another's; nested as the module says."""
    if isinstance(state, torch.Tensor):
        return state.clone()
    if isinstance(state, np.ndarray):
        return state.copy()
    if isinstance(state, dict):
        return {key: copy_of(part) for key, part in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(copy_of, state))
    return state


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
    # `reshape` leaves to one number the stride that it had.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def host_pieces(tensor: torch.Tensor, most: int) -> Iterator[torch.Tensor]:
    """The bytes of a tensor in order, on the host, as uint8 of shape ``(bytes,)`` each.

    Args:
        tensor: on any device, and in one piece or not.
        most: bytes of a piece, and so the most that is copied at a time; at least a number's.
    """
    size = _size(tensor)
    if not size:
        return
    if size <= most or tensor.numel() == 1:
        yield tensor_bytes(tensor.to("cpu").contiguous())
        return
    rows = tensor.reshape(-1) if tensor.is_contiguous() else tensor
    each = size // len(rows)
    if each > most:
        for row in rows:
            yield from host_pieces(row, most)
        return
    count = most // each
    for at in range(0, len(rows), count):
        yield tensor_bytes(rows[at : at + count].to("cpu").contiguous())
