"""A training process's connection to one data worker: what it was sent, and the memory they share.

What sends is called with the lock of the `WorkerPool` held, and never waits for long: only small
messages are sent then; what comes is read by one thread without it. A pipeline, which may be large,
is sent by a thread of its own, and meanwhile the link takes no requests.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import OrderedDict
from enum import Enum, auto
from typing import Any, Final

from penstock.data.errors import FrameError
from penstock.data.pipeline import PackedPipeline
from penstock.data.queue.credits import MAX_CREDITS
from penstock.data.transport import frame, messages
from penstock.data.transport.blocks import Pool, Root, SharedBlock
from penstock.data.transport.handshake import Peer
from penstock.data.transport.layout import Layout
from penstock.data.transport.messages import NO_BLOCK

logger = logging.getLogger(__name__)

KNOWN_PIPELINES: Final = 8
MAX_SHARED_BYTES: Final = 512 << 20
BLOCKS_BEYOND_CREDITS: Final = 3
"""The program holds one batch, and another while it takes the next."""
_SMOOTHING: Final = 0.3


class Opened(Enum):
    """What became of a pipeline that was sent to a data worker."""

    SENT = auto()
    OPEN = auto()
    REFUSED = auto()


class WorkerConnection:
    """One data worker, as the training process sees it."""

    def __init__(self, sock: socket.socket, peer: Peer, credits_: int) -> None:
        self.name = peer.name
        self.shares_memory = sock.family == socket.AF_UNIX
        self.leaving = False
        self.dead = False
        self.batch_seconds: float | None = None  # smoothed
        self.pipelines: OrderedDict[bytes, Opened] = OrderedDict()
        self._sock = sock
        self._reader = frame.Reader(sock)
        self._pool = Pool()
        self._root: Root | None = None
        self._credits = credits_
        self._sending: bytes | None = None  # the pipeline that is being sent
        self._flag = threading.Lock()  # of `_sending`, which two threads clear
        self._send_lock = threading.Lock()
        self._blocks: dict[int, SharedBlock] = {}
        self._next_block = 0
        self._layout: Layout | None = None

    # ------------------------------------------------------------------ sending

    def usable(self, digest: bytes) -> bool:
        """Whether it can be asked for batches of a pipeline now."""
        if self.dead or self.leaving or self._sending is not None:
            return False
        return self.pipelines.get(digest) is Opened.OPEN

    def introduce(self, packed: PackedPipeline, needed: set[bytes]) -> None:
        """Send a pipeline that the data worker has not got, in the background."""
        busy = self._sending is not None or self.dead or self.leaving
        if packed.digest in self.pipelines or busy:
            return
        while len(self.pipelines) >= KNOWN_PIPELINES:
            old = next((digest for digest in self.pipelines if digest not in needed), None)
            if old is None:
                return
            del self.pipelines[old]
            self._send(messages.FORGET, [old])
        self.pipelines[packed.digest] = Opened.SENT
        self._sending = packed.digest
        threading.Thread(
            target=self._introduce, args=(packed,), name="penstock-pipeline", daemon=True
        ).start()

    def _introduce(self, packed: PackedPipeline) -> None:
        self._send(messages.PIPELINE, [packed.digest, packed.signature], [packed.blob])
        self._sent(packed.digest)

    def _sent(self, digest: bytes) -> None:
        with self._flag:
            if self._sending == digest:
                self._sending = None

    def note_opened(self, digest: bytes, *, refused: bool) -> bool:
        """The data worker has opened a pipeline, or cannot; False for one that it was not sent.

        It has got all of it then, whether or not the thread that sends has noticed.
        """
        if digest not in self.pipelines:
            return False
        self._sent(digest)
        self.pipelines[digest] = Opened.REFUSED if refused else Opened.OPEN
        return True

    def request(
        self, stream: int, digest: bytes, seed: int, steps: list[tuple[int, Any]], size: int
    ) -> None:
        """Ask for batches, of steps and their indices; each is expected to have ``size`` bytes."""
        shared = self.shares_memory and size > 0
        asked = [
            [step, messages.pack_indices(indices), self._block_for(size) if shared else NO_BLOCK]
            for step, indices in steps
        ]
        self._send(messages.MAKE, [stream, digest, seed, asked])

    def drop(self, stream: int) -> None:
        """Nothing more is wanted of a stream."""
        self._send(messages.DROP, [stream])

    def end(self) -> None:
        """Close the connection: the thread that receives then ends."""
        self.dead = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already

    def _send(self, kind: int, header: Any, body: Any = (), descriptors: Any = ()) -> None:
        if self.dead:
            return
        try:
            with self._send_lock:
                frame.send(self._sock, kind, header, body, descriptors)
        except FrameError as error:
            logger.warning("data worker %s: %s", self.name, error)
            self.end()

    # ------------------------------------------------------------------ shared memory

    def _block_for(self, size: int) -> int:
        blocks = self._blocks.values()
        fitting = next((block for block in blocks if block.size >= size and block.free), None)
        if fitting is None:
            for block in [block for block in blocks if block.free]:  # too small for what comes now
                del self._blocks[block.number]
            fitting = self._new_block(size)
        if fitting is None:
            return NO_BLOCK
        fitting.requested = True
        return fitting.number

    def _new_block(self, size: int) -> SharedBlock | None:
        held = sum(block.size for block in self._blocks.values())
        full = len(self._blocks) >= max(self._credits, MAX_CREDITS) + BLOCKS_BEYOND_CREDITS
        if full or held + size > MAX_SHARED_BYTES:
            return None
        block = SharedBlock(self._next_block, size)
        self._next_block += 1
        self._blocks[block.number] = block
        self._send(messages.BLOCK, [block.number, block.size], (), [block.descriptor])
        block.sent()
        return block

    # ------------------------------------------------------------------ receiving

    def receive(self) -> tuple[int, list[Any]]:
        """The next message: its kind and fields. Raises FrameError, TimeoutError."""
        received = self._reader.receive(self._allocate)
        return received.kind, messages.fields(received.kind, received.header)

    def _allocate(self, size: int) -> memoryview:
        self._root = self._pool.allocate(size)
        return self._root.data[:size]

    def arrays_of(self, block: int, size: int) -> Root:
        """Where the arrays of the batch that has just come are.

        Raises:
            FrameError: the data worker names a block that it was not given.
        """
        root: Root | None
        if block == NO_BLOCK:
            root, self._root = self._root, None
            if root is None or root.size < size:
                if size == 0:
                    return self._pool.allocate(0)
                raise FrameError("a batch without its arrays")
            return root
        shared = self._blocks.get(block)
        if shared is None or not shared.requested or size > shared.size:
            raise FrameError(f"a batch in block {block}, which was not given out for it")
        root = shared.root()
        shared.requested = False
        return root

    def layout(self, structure: object) -> Layout:
        """How the batch that has just come is laid out: mostly as the one before.

        Raises:
            FrameError, NotPortableError: it cannot be read.
        """
        if not isinstance(structure, bytes):
            raise FrameError("a batch whose structure is not bytes")
        if self._layout is None or self._layout.structure != structure:
            self._layout = Layout(structure)
        return self._layout

    def unused(self, block: int) -> None:
        """A request was answered without using its block."""
        if (shared := self._blocks.get(block)) is not None:
            shared.requested = False

    def took(self, seconds: float) -> None:
        """A batch took the data worker so long."""
        before = self.batch_seconds
        self.batch_seconds = seconds if before is None else before + _SMOOTHING * (seconds - before)

    def close(self) -> None:
        """Release the socket; blocks live as long as the batches in them."""
        self.dead = True
        self._sock.close()
        self._blocks.clear()
