"""The tensors of a state as they are now, on the host: what a checkpoint is written from.

Those of the host are copied at once. Those of a GPU would hold up the training for as long as their
copies take, one after the other into pageable memory; they are begun together instead, into one
block of page-locked memory, and whoever needs the values waits for them (`Copies.wait`).

Invariants: a copy holds what its tensor held when it was asked for, whatever the training does to
the tensor afterwards. There is one block of page-locked memory, of the size of the state and at
most of ``max_bytes``, used again for every state; where it is in use, too small or not to be had,
there are no copies in it, and whoever asked makes them at once where the pod has memory for them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch

logger = logging.getLogger(__name__)

ALIGNMENT: Final = 64
"""Bytes; more than any type of number needs."""


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Copies:
    """Copies on the host, in the order of their tensors."""

    tensors: list[torch.Tensor]
    wait: Callable[[], None] = _nothing
    """Returns when they hold their values; by whatever thread, any number of times."""
    release: Callable[[], None] = _nothing
    """To be called once nobody looks at them any more: their memory is used again."""


class Copier(Protocol):
    """What copies the tensors of a state that are not on the host."""

    def carries(self, device: torch.device) -> bool:
        """Whether it does this for a device."""

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Copies | None:
        """Copies of tensors of such devices, which may be changed as soon as this returns.

        None: there is no place of its own for them now.
        """


def copy_at_once(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that is made when this returns."""
    return tensor.to("cpu", copy=True).contiguous()


@dataclass(frozen=True)
class Region:
    """What comes from one device: tensors, and where each is to be in a part of the block."""

    device: torch.device
    host: torch.Tensor
    """uint8 of shape ``(bytes,)``."""
    parts: list[tuple[torch.Tensor, int]]
    """Each tensor, and where its bytes begin."""


class Transport(Protocol):
    """How tensors of some devices come to page-locked memory."""

    def carries(self, device: torch.device) -> bool:
        """Whether it does this for a device."""

    def allocate(self, size: int) -> torch.Tensor:
        """Page-locked memory: uint8 of shape ``(size,)``. Raises RuntimeError: there is none."""

    def begin(self, regions: Sequence[Region]) -> Callable[[], None]:
        """Begin to copy; returns what waits until that is done."""


@dataclass(frozen=True)
class Plan:
    """Where in one block the tensors of several devices are to be."""

    spans: dict[torch.device, tuple[int, int]]
    """The part of each device: its beginning and its end."""
    places: list[int]
    """Where each tensor begins, within the part of its device."""

    @property
    def total(self) -> int:
        """Bytes of the block."""
        return max((stop for _, stop in self.spans.values()), default=0)


def plan(sizes: Sequence[tuple[torch.device, int]]) -> Plan:
    """Place tensors of these devices and sizes, those of each device behind one another."""
    ends: dict[torch.device, int] = {}
    places = []
    for device, size in sizes:
        start = ends.get(device, 0)
        places.append(start)
        ends[device] = start + _aligned(size)
    spans, at = {}, 0
    for device, size in ends.items():
        spans[device] = (at, at + size)
        at += size
    return Plan(spans, places)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def view(flat: torch.Tensor, start: int, like: torch.Tensor) -> torch.Tensor:
    """Bytes of a block as a tensor of the type and shape of another one."""
    size = like.numel() * like.element_size()
    return flat[start : start + size].view(like.dtype).view(like.shape)


class PinnedCopier:
    """Copies through one block of page-locked memory; see the module's docstring."""

    def __init__(self, transport: Transport, max_bytes: Callable[[], int]) -> None:
        """``max_bytes``: the most that the block may have now; asked when it has to grow."""
        self._transport = transport
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # released by the thread that writes
        self._block: torch.Tensor | None = None
        self._lent = False
        self._wait: Callable[[], None] = _nothing  # for the newest copies into the block
        self._refused = 0  # bytes that the system did not have: they are not asked for again
        self._short = False  # said in the log

    def carries(self, device: torch.device) -> bool:
        """As `Copier.carries`."""
        return self._transport.carries(device)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Copies | None:
        """As `Copier` says."""
        layout = plan([(t.device, t.numel() * t.element_size()) for t in tensors])
        block = self._borrow(layout.total) if layout.total else None
        if block is None:
            return None
        regions = {
            device: Region(device, block[start:stop], [])
            for device, (start, stop) in layout.spans.items()
        }
        copies = []
        for tensor, start in zip(tensors, layout.places, strict=True):
            region = regions[tensor.device]
            region.parts.append((tensor, start))
            copies.append(view(region.host, start, tensor))
        try:
            self._wait = self._transport.begin(list(regions.values()))
        except BaseException:
            self._give_back()
            raise
        return Copies(copies, self._wait, self._give_back)

    def _borrow(self, size: int) -> torch.Tensor | None:
        """The block, if it is free and has, or can get, so many bytes."""
        with self._lock:
            if self._lent:
                return None
            self._lent = True
        try:
            self._wait()  # a state that was given up may still be on its way into the block
            if self._block is None or self._block.numel() < size:
                self._block = self._larger(size)
        except BaseException:
            self._give_back()
            raise
        if self._block is None:
            self._give_back()
        return self._block

    def _larger(self, size: int) -> torch.Tensor | None:
        if self._refused and size >= self._refused:
            return None
        self._block = None  # before the next one is there: never both
        most = self._max_bytes()
        if size > most:  # now: there may be room for the next state
            if not self._short:
                self._warn(size, f"at most {most / 1e6:.0f} MB are used for it")
            self._short = True
            return None
        try:
            block = self._transport.allocate(size)
        except RuntimeError as error:
            self._refused = size
            self._warn(size, str(error).partition("\n")[0])
            return None
        self._short = False
        return block

    def _warn(self, size: int, why: str) -> None:
        logger.warning(
            "checkpoints hold up the training: no %.0f MB of page-locked memory, %s",
            size / 1e6,
            why,
        )

    def _give_back(self) -> None:
        with self._lock:
            self._lent = False
