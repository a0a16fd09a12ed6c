"""Pinned memory that local workers write batches to, made ahead of the requests for it.

The memory is PyTorch's own (ADR 0018): a tensor of bytes from its caching host allocator, which
gives the memory out again only when every copy to a device that began from it is over. So nothing
here keeps events: a block is dropped with the last tensor in it, and that is all.

To allocate may take 100 ms. So `lend` gives what is ready and otherwise nothing, and each call says
that one more will be wanted; `next_order` and `put` are for a thread that can wait. The decisions
are here, and all but `make` are called with the lock of `Makers` held; what allocates comes from
`penstock.data.pinned.allocator`, or from a test.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.data.transport.messages import FIRST_PINNED

logger = logging.getLogger(__name__)

Allocate = Callable[[int], Any]
"""Gives a tensor of so many bytes, pinned."""

LEAST_BYTES: Final = 64 << 10
"""Smaller batches are copied where they arrive: their arrays are copied anyway."""
SPARE_BLOCKS: Final = 2
SPARE_BYTES: Final = 64 << 20
"""Blocks of one size that lie ready: so many, or more of small ones."""

_kept: Final[list[Any]] = []
"""What must never be given out again, as long as this process lives."""


def rounded(size: int) -> int:
    """What PyTorch's allocator takes for so many bytes: the next power of two."""
    return 1 << max(0, size - 1).bit_length()


@dataclass(frozen=True, slots=True)
class PinnedBlock:
    """Memory for one batch; ``base`` is a tensor of bytes."""

    number: int
    base: Any
    size: int

    @property
    def address(self) -> int:
        """Where it begins."""
        address: int = self.base.data_ptr()
        return address


@dataclass(frozen=True, slots=True)
class Order:
    """A block that is to be made."""

    number: int
    size: int
    allocate: Allocate

    def make(self) -> PinnedBlock:
        """Allocate it; may take long, and raises what the device's driver does."""
        return PinnedBlock(self.number, self.allocate(self.size), self.size)


class PinnedPool:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.refused = False  # whether batches are pinned where they arrive from now on
        self._ready: dict[int, deque[PinnedBlock]] = {}
        self._wanted: Counter[int] = Counter()
        self._allocate: Allocate | None = None
        self._alive: dict[int, int] = {}  # bytes of each block; taken from by the collector
        self._numbers = itertools.count(FIRST_PINNED, -1)

    @property
    def held_bytes(self) -> int:
        """Of all blocks that are not gone yet."""
        return sum(list(self._alive.values()))

    def lend(self, size: int, allocate: Allocate) -> PinnedBlock | None:
        """A block of at least so many bytes, if one is ready."""
        if self.refused or size < LEAST_BYTES:
            return None
        self._allocate = allocate
        size = rounded(size)
        ready = self._ready.setdefault(size, deque())
        self._wanted[size] = min(self._wanted[size] + 1, _spare(size))
        return ready.popleft() if ready else None

    def give_back(self, block: PinnedBlock) -> None:
        """A block was not used, and nobody writes to it."""
        if self.refused or self._allocate is None:  # nobody has asked since `trim`
            return
        ready = self._ready.setdefault(block.size, deque())
        if len(ready) < _spare(block.size):
            ready.append(block)

    def next_order(self) -> Order | None:
        """What is to be made now, if anything: `put` it, or `refuse`."""
        if self.refused or self._allocate is None:
            return None
        for size in list(self._wanted):
            if self._wanted[size] > 0 and len(self._ready.get(size, ())) < _spare(size):
                self._wanted[size] -= 1
                return Order(next(self._numbers), size, self._allocate)
            del self._wanted[size]
        return None

    def put(self, block: PinnedBlock) -> None:
        """A block has been made."""
        alive, number = self._alive, block.number
        alive[number] = block.size
        # Tensors that share the memory share its storage, and that object lives as long as it.
        weakref.finalize(block.base.untyped_storage(), alive.pop, number, None).atexit = False
        self.give_back(block)

    def refuse(self, why: str) -> None:
        """Lend nothing any more: it cannot be written to, or there is none."""
        if self.refused:
            return
        logger.warning(
            "batches are copied into pinned memory by the training process from now on, since its "
            "local workers cannot write there: %s",
            why,
        )
        self.refused = True
        self.trim()

    def trim(self) -> None:
        """Let go of what lies ready."""
        self._ready.clear()
        self._wanted.clear()
        self._allocate = None

    def forget_in_child(self) -> None:
        """In a process that was forked: use nothing, and free nothing either.

        To free is to call the parent's allocator, whose lock another thread may have had.
        """
        self.refused = True
        _kept.append(dict(self._ready))
        self.trim()


class LentPinned:
    """The blocks that one local worker may write to now, by the numbers that it knows."""

    def __init__(self, pool: PinnedPool) -> None:
        self._pool = pool
        self._lent: dict[int, PinnedBlock] = {}

    def lend(self, size: int, allocate: Allocate) -> PinnedBlock | None:
        """As `PinnedPool.lend`."""
        block = self._pool.lend(size, allocate)
        if block is not None:
            self._lent[block.number] = block
        return block

    def take(self, number: int) -> PinnedBlock | None:
        """The block that a batch has come in; None: it was not lent."""
        return self._lent.pop(number, None)

    def give_back(self, number: int) -> None:
        """A request was answered without using its block."""
        if (block := self._lent.pop(number, None)) is not None:
            self._pool.give_back(block)

    def refuse(self, number: int, why: str) -> None:
        """The worker could not write to its block."""
        self.give_back(number)
        self._pool.refuse(why)

    def end(self, *, dead: bool) -> None:
        """The worker is lost; ``dead``: it is known that its process is no more.

        Until then it may be in the middle of a write: what it was lent is kept, for ever if need
        be.
        """
        if not dead:
            _kept.append(list(self._lent.values()))
        self._lent.clear()

    def forget_in_child(self) -> None:
        """As `PinnedPool.forget_in_child`."""
        self.end(dead=False)


def _spare(size: int) -> int:
    return max(SPARE_BLOCKS, SPARE_BYTES // size)
