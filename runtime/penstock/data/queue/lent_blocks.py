"""The shared blocks that one maker may write to now.

A maker is lent a block with each request, or for a large batch when it asks for one, so that a
batch is written where the program reads it. It maps a block when it first gets it, and lets go of
those that are lent to nobody any more. One that was lent to a maker that is lost is never lent
again: the maker may be alive, and write. All methods are called with the lock of `Makers` held.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from penstock.data.errors import FrameError
from penstock.data.pinned.pool import Allocate, LentPinned
from penstock.data.transport import messages
from penstock.data.transport.blocks import Root, SharedBlock, SharedPool
from penstock.data.transport.messages import ASK_FOR_BLOCK, NO_BLOCK, OWN_BLOCK

LENT_AT_NEED_BYTES: Final = 16 << 20
"""A larger batch is lent memory when it is about to be written, not with the request for it."""
MAX_LENT: Final = 256
"""Blocks that one maker may have at once; its requests are fewer."""
MAX_BLOCK_BYTES: Final = 1 << 40


class LentBlocks:
    """See the module's docstring."""

    def __init__(
        self,
        shared: SharedPool,
        send: Callable[..., Any],
        *,
        can_share: bool,
        pinned: LentPinned,
    ) -> None:
        """``can_share``: whether the maker is on this machine; ``pinned``: what else it is lent."""
        self._shared = shared
        self._pinned = pinned
        self._send = send
        self._can_share = can_share
        self._mapped: dict[int, SharedBlock] = {}
        self._lent: set[int] = set()
        self._offered: SharedBlock | None = None
        self._dropped = 0  # blocks of all makers, when the last were unmapped

    def promise(self, size: int, allocate: Allocate | None = None) -> Any:
        """What goes with the request for a batch of so many bytes, or 0 if that is not known.

        ``allocate``: of the pinned memory that a local worker is to write it to.
        """
        pinned = self._pinned.lend(size, allocate) if allocate is not None else None
        if pinned is not None:
            return [pinned.number, pinned.address, pinned.size]
        if self._can_share and (not size or size > LENT_AT_NEED_BYTES):
            return ASK_FOR_BLOCK
        return self.lend(size)

    def lend(self, size: int) -> int:
        """The number of a block for a batch of so many bytes; `NO_BLOCK` if there is none."""
        wanted = self._can_share and 0 < size <= MAX_BLOCK_BYTES and len(self._lent) < MAX_LENT
        block = self._shared.lend(size) if wanted else None
        if self._dropped != self._shared.dropped:
            self._dropped = self._shared.dropped
            self.unmap_dropped()
        if block is None:
            return NO_BLOCK
        if block.number not in self._mapped:
            self._send(messages.BLOCK, [block.number, block.size], (), [block.descriptor])
            self._mapped[block.number] = block
        self._lent.add(block.number)
        return block.number

    def answer(self, size: int) -> None:
        """The maker wants memory for a batch of so many bytes."""
        self._send(messages.LEND, [self.lend(size)])

    def give_back(self, number: int) -> None:
        """A request was answered without using its block."""
        self._pinned.give_back(number)
        if number in self._lent:
            self._lent.discard(number)
            self._shared.give_back(self._mapped[number])

    def take_offered(self, size: int, descriptors: tuple[int, ...]) -> None:
        """The maker had no block and has made one, for the batch that it sends next.

        Raises:
            FrameError: nobody waits for one, or it cannot be used.
        """
        if len(descriptors) != 1 or self._offered is not None or not self._can_share:
            for descriptor in descriptors:
                os.close(descriptor)
            raise FrameError("a block that nobody waits for")
        self._offered = self._shared.adopt(descriptors[0], size)

    def root(self, number: int, size: int) -> Root:
        """The bytes of the batch that has just come in a block.

        Raises:
            FrameError: the maker was not lent it, or it is too small.
        """
        block: SharedBlock | None = None
        if number == OWN_BLOCK:
            block, self._offered = self._offered, None
        elif number in self._lent:
            self._lent.discard(number)
            block = self._mapped[number]
        if block is None:
            raise FrameError(f"a batch in block {number}, which was not given out for it")
        if size > block.size:
            self._shared.drop(block)
            raise FrameError(f"a batch of {size} bytes in a block of {block.size}")
        return self._shared.root(block)

    def unmap_dropped(self) -> None:
        """Have the maker let go of what is lent to nobody any more."""
        dropped = [number for number in self._mapped if number not in self._shared.blocks]
        if dropped:
            self._send(messages.UNMAP, [dropped])
            for number in dropped:
                del self._mapped[number]
                self._lent.discard(number)

    def close(self) -> None:
        """The maker is gone."""
        for number in self._lent:
            self._shared.drop(self._mapped[number])
        self._lent.clear()
        self._mapped.clear()
        if self._offered is not None:
            self._shared.drop(self._offered)
            self._offered = None
