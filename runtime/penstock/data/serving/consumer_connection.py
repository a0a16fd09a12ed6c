"""The connection to one training process, its requests, and the memory that batches go to.

A batch goes to a block of shared memory that the other end lends, to memory of the training process
itself, or over the connection.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final

from penstock.data.cuts.head_and_tail import Tail
from penstock.data.cuts.points import Point
from penstock.data.dataset_watch import DatasetWatch
from penstock.data.pipeline import AnyPipeline
from penstock.data.serving.asked_files import AskedFiles
from penstock.data.serving.batch_memory import PLACED_BYTES, BatchMemory, write
from penstock.data.serving.link_coding import LinkCoding
from penstock.data.serving.pinned_memory import PinnedMemory, Place
from penstock.data.streams.pipeline import StreamHost
from penstock.data.transport import messages
from penstock.data.transport.batch_codec import Packed
from penstock.data.transport.blocks import create_shared
from penstock.data.transport.codings import UNTOLD, Allowed
from penstock.data.transport.dictionary_coding import Coded
from penstock.data.transport.link_use import link_use
from penstock.data.transport.messages import ASK_FOR_BLOCK, NO_BLOCK, OWN_BLOCK
from penstock.data.transport.outbox import Outbox
from penstock.data.transport.seal import Seals
from penstock.data.weights.fetching import AskedParts

LEND_SECONDS: Final = 2.0
"""So long memory is waited for; then a batch is made in memory of its own."""


@dataclass(slots=True)
class Request:
    """One batch that a training process has asked for."""

    line: ConsumerConnection
    stream: int
    step: int
    digest: bytes
    seed: int
    indices: Any
    block: int
    place: Place | None = None  # the block, if it is memory of the training process
    until: int | None = None  # the batched stage before which it is to end
    begun: Any = None  # by a data worker, which a local worker is to finish
    ticket: Any = None  # of the stage before, which was asked for it


@dataclass(eq=False, slots=True)
class ConsumerConnection:
    """The connection to one training process."""

    name: str
    sock: socket.socket
    shares_memory: bool = False
    pipelines: dict[bytes, AnyPipeline] = field(default_factory=dict)
    local: bool = False  # to the program whose child this process is
    streams: StreamHost = field(default_factory=lambda: StreamHost(watches=True))
    watches: dict[bytes, DatasetWatch] = field(default_factory=dict)
    on_end: Callable[[], None] | None = None
    seals: Seals | None = None  # from its handshake
    by_group: bool = False  # of another job of the share group
    blocks: dict[int, mmap.mmap] = field(default_factory=dict)
    lent: SimpleQueue[int] = field(default_factory=SimpleQueue)  # asked for, not used yet
    pinned: PinnedMemory = field(default_factory=PinnedMemory)
    outbox: Outbox = field(init=False)
    allowed: Allowed = UNTOLD  # how its batches may be coded
    parts: AskedParts = field(default_factory=AskedParts)  # of weights
    files: AskedFiles = field(default_factory=AskedFiles)  # of the program's machine
    tails: dict[Point, Tail] = field(default_factory=dict)
    _coding: LinkCoding | None = None
    _asked_in_vain: bool = False  # for memory; until the other end answers

    def __post_init__(self) -> None:
        seal = self.seals.sending if self.seals else None
        self.outbox = Outbox(self.sock, seal, alone=self.local)

    def send(self, kind: int, header: Any, body: Any = (), size: int | None = None) -> None:
        """Send one message; any thread may, and waits for nobody who does not take it."""
        self.outbox.send(kind, header, body, size)

    def send_batch(self, head: list[Any], packed: Packed, cost: list[Any]) -> None:
        """Send a batch for which there is no memory that both ends have."""
        if (coded := self._coded(packed, cost)) is None:
            self.send(messages.BATCH, [*head, NO_BLOCK, cost], packed.parts, packed.size)
        else:
            self.send(messages.CODED, [*head, coded.coding, cost], coded.parts, coded.size)

    def _coded(self, packed: Packed, cost: list[Any]) -> Coded | None:
        if self.seals is None:
            return None  # it is no network that lies between
        if self._coding is None:
            self._coding = LinkCoding(lambda: link_use(self.sock), name=self.name)
        return self._coding.code(packed, cost[0], self.allowed)

    def borrow(self, size: int) -> int:
        """The number of a block that the other end lends; `NO_BLOCK` if it does not."""
        with suppress(Empty):
            number = self.lent.get_nowait()  # it came too late for an earlier batch
            self._asked_in_vain = False
            return number
        if self._asked_in_vain:
            return NO_BLOCK  # who stands still is waited for once
        self.send(messages.WANT, [size])
        try:
            return self.lent.get(timeout=LEND_SECONDS)
        except Empty:
            self._asked_in_vain = True
            return NO_BLOCK

    def offer(self, packed: Packed, made_in: BatchMemory) -> bool:
        """Put a batch for which there is no block into a new one; False where there is none.

        The block is the other end's from then on: it may lend it to anybody, this end included.
        """
        if not self.shares_memory or packed.size < PLACED_BYTES:
            return False
        descriptor = made_in.take_own(packed)
        try:
            if descriptor is None:
                descriptor = create_shared(packed.size)
                with mmap.mmap(descriptor, packed.size) as memory:
                    write(memory, packed)
            head = [OWN_BLOCK, packed.size]
            return self.outbox.send_descriptor(messages.BLOCK, head, descriptor)
        except (OSError, ValueError):
            return False
        finally:
            if descriptor is not None:
                os.close(descriptor)


def lent_block(block: Any) -> tuple[int, Place | None]:
    """The block of a request, and where it is if it is memory of the training process."""
    if isinstance(block, int):
        return block, None
    number, address, size = block
    return number, Place(address, size)


def naming(request: Request) -> list[Any]:
    """How messages about a request name it."""
    return [request.stream, request.step, request.block]


def block_of(request: Request, size: int) -> mmap.mmap | None:
    """The shared block of a batch of so many bytes, if there is one.

    Raises:
        FrameError: the other end is gone.
    """
    if request.block == ASK_FOR_BLOCK:
        request.block = NO_BLOCK
        if size >= PLACED_BYTES:
            request.block = request.line.borrow(size)
    return request.line.blocks.get(request.block)


def put(request: Request, packed: Packed, made_in: BatchMemory, *, pinnable: bool) -> bool:
    """Have a batch in its block; False when it has none, or the batch cannot be there.

    ``pinnable``: whether it is one for the training process's memory.

    Raises:
        FrameError: the training process is gone.
    """
    if request.place is not None:
        line = request.line
        try:
            return pinnable and line.pinned.write(request.place, packed)
        except OSError as error:
            line.send(messages.UNWRITTEN, [request.block, f"process_vm_writev: {error}"])
            request.block = NO_BLOCK
            return False
    memory = block_of(request, packed.size)
    if memory is None or packed.size > len(memory):
        return False
    made_in.write(packed, memory)
    return True
