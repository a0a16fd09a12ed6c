"""A training process's connection to one maker of batches: what it was sent, and its memory.

A maker is a data worker, or a local worker: one of the processes that the program's loader asked
for, which is this process's own child. What sends is called with the lock of the `Makers` held,
and never waits for long: only small messages are sent then; what comes is read by one thread
without it. A pipeline, which may be large, is sent by a thread of its own, and meanwhile the link
takes no requests; a local worker was born with its pipeline.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
import threading
import time
from collections import OrderedDict
from enum import Enum, auto
from typing import Any, Final

from penstock.base.enums import Compression
from penstock.data.errors import FrameError
from penstock.data.pinned.pool import Allocate, LentPinned, PinnedPool
from penstock.data.pipeline import PackedPipeline
from penstock.data.processes import is_stopped
from penstock.data.queue.lent_blocks import LentBlocks
from penstock.data.queue.received_bodies import ReceivedBodies
from penstock.data.queue.served_files import ServedFiles
from penstock.data.stage_devices import CPU
from penstock.data.transport import frame, messages
from penstock.data.transport.batch_codec import Packed
from penstock.data.transport.blocks import SharedPool
from penstock.data.transport.codings import Allowed, Coding, allow, offered
from penstock.data.transport.layout import Layout
from penstock.data.transport.messages import ALIVE, ALIVE_SECONDS, FIRST_PINNED, NO_BLOCK
from penstock.data.transport.seal import Seals
from penstock.data.weight_bundle import Weights

logger = logging.getLogger(__name__)

KNOWN_PIPELINES: Final = 8
SILENT_SECONDS: Final = 2 * ALIVE_SECONDS
"""A data worker that has said nothing for so long, not even that it is alive, stands still."""
_SMOOTHING: Final = 0.3


class Opened(Enum):
    """What became of a pipeline that was sent to a data worker."""

    SENT = auto()
    OPEN = auto()
    REFUSED = auto()


class LargeMessages:
    """How many messages of a connection are under way behind which no request is to be sent.

    Several threads send them to one maker: parts of weights and files, and batches to be finished
    of as many data workers as there are.
    """

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return self._count > 0

    def begin(self) -> None:
        """One more will be sent; who knows so with the lock of the `Makers` held says it there."""
        with self._lock:
            self._count += 1

    def end(self) -> None:
        """It has been sent, or never will be."""
        with self._lock:
            self._count -= 1

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()


class WorkerConnection:
    """One maker of batches, as the training process sees it."""

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        shared: SharedPool,
        *,
        local: bytes | None = None,
        number: int = 0,
        seals: Seals | None = None,
        pinned: PinnedPool | None = None,
        codings: tuple[Coding, ...] = (),
        stage: int = 0,
        devices: frozenset[str] = frozenset({CPU}),
    ) -> None:
        """``local``: of a local worker, the key of the one pipeline that it has; and its number.

        ``seals``: of the connection, from its handshake. ``pinned``: memory that a local worker may
        write to. ``codings``: in which the other end can send batches. ``stage``: of a data worker,
        and the ``devices`` that it has.
        """
        self.name = name
        self.local = local is not None
        self.number = number
        self.stage, self.devices = stage, devices
        self.shares_memory = sock.family == socket.AF_UNIX
        self.leaving = False
        self.dead = False
        self.batch_seconds: float | None = None  # smoothed
        self.wire_bytes = 0  # of the arrays that came last, as they came
        self.pipelines: OrderedDict[bytes, Opened] = OrderedDict()
        if local is not None:
            self.pipelines[local] = Opened.OPEN
        self._sock = sock
        self._pid = _pid_of(sock) if not self.local else 0
        self._heard_at = time.monotonic()
        self.passed_over = False  # it stands still: others are asked, until it answers again
        self._reader = frame.Reader(sock, seals.receiving if seals else None)
        self._seal = seals.sending if seals else None
        self._bodies = ReceivedBodies()
        self._sending: bytes | None = None  # the pipeline that is being sent
        self.large = LargeMessages()  # beside that
        self._weights: dict[bytes, tuple[Weights, ...]] = {}  # by pipeline
        self.proofs: dict[bytes, bytes] = {}  # of those that jobs share, what it makes of each
        self._flag = threading.Lock()  # of `_sending`, which two threads clear
        self._send_lock = threading.Lock()
        self.pinned = LentPinned(pinned or PinnedPool())
        self.blocks = LentBlocks(
            shared, self.send, can_share=self.shares_memory, pinned=self.pinned
        )
        self._layout: Layout | None = None
        self._codings = codings
        self._allowed: Allowed | None = None  # as it was last told

    def stands_still(self) -> bool:
        """Whether its process was stopped by a signal, or has not been heard of for long."""
        silent = time.monotonic() - self._heard_at
        return silent > SILENT_SECONDS or bool(self._pid and is_stopped(self._pid))

    # ------------------------------------------------------------------ sending

    def usable(self, digest: bytes | None) -> bool:
        """Whether it can be asked for batches of a pipeline now."""
        if self.dead or self.leaving or self.passed_over or digest is None:
            return False
        if self._sending is not None or self.large:
            return False
        return self.pipelines.get(digest) is Opened.OPEN

    def opens(self, digest: bytes | None) -> bool:
        """Whether a data worker is about to have a pipeline: it is packed, sent or opened now."""
        if self.dead or self.leaving:
            return False
        return digest is None or self.pipelines.get(digest, Opened.SENT) is Opened.SENT

    def introduce(self, packed: PackedPipeline, needed: set[bytes]) -> None:
        """Send a pipeline that the data worker has not got, in the background."""
        busy = self._sending is not None or self.dead or self.leaving or self.local
        if packed.digest in self.pipelines or busy:
            return
        while len(self.pipelines) >= KNOWN_PIPELINES:
            old = next((digest for digest in self.pipelines if digest not in needed), None)
            if old is None:
                return
            del self.pipelines[old]
            self._weights.pop(old, None)
            self.proofs.pop(old, None)
            self.send(messages.FORGET, [old])
        self.pipelines[packed.digest] = Opened.SENT
        self._weights[packed.digest] = packed.weights
        self._sending = packed.digest

        def introduce() -> None:
            self.send(messages.PIPELINE, [packed.digest, packed.signature], [packed.blob])
            self._sent(packed.digest)

        threading.Thread(target=introduce, name="penstock-pipeline", daemon=True).start()

    def send_part(self, digest: bytes, offset: int, size: int) -> int:
        """Answer what was asked of the weights of a pipeline; the bytes that were sent.

        Raises:
            FrameError: it is more than may be asked for.
        """
        if not 0 < size <= messages.PART_BYTES or offset < 0:
            raise FrameError(f"{size} bytes of weights at {offset} were asked for")
        known = [one for weights in list(self._weights.values()) for one in weights]
        found = next((one for one in known if one.digest == digest), None)
        if found is None or offset + size > found.size:
            self.send(messages.PART, [digest, offset, "there are no such weights here any more"])
            return 0
        with self.large:
            self.send(messages.PART, [digest, offset, ""], found.read(offset, size))
        return size

    def send_file(self, files: ServedFiles, path: object, offset: object, size: object) -> None:
        """Answer what was asked of a file of this machine.

        Raises:
            FrameError: nobody may ask so.
        """
        served = files.read(path, offset, size)
        header = [path, offset, served.total, served.error, served.version]
        with self.large:
            self.send(messages.FILE, header, [served.part] if served.part else ())

    def finish(
        self, stream: int, digest: bytes, seed: int, asked: list[Any], packed: Packed
    ) -> None:
        """Have a local worker finish a batch; large, so without the lock of the `Makers`.

        It is one of `large`, which whoever chose this maker has begun.
        """
        header = [stream, digest, seed, asked, packed.structure, packed.size]
        try:
            self.send(messages.FINISH, header, packed.parts)
        finally:
            self.large.end()

    def _sent(self, digest: bytes) -> None:
        with self._flag:
            if self._sending == digest:
                self._sending = None

    def note_opened(self, digest: bytes, *, refused: bool, proof: bytes = b"") -> bool:
        """The data worker has opened a pipeline, or cannot; False for one that it was not sent.

        It has got all of it then, whether or not the thread that sends has noticed. ``proof``: what
        one that jobs share makes there.
        """
        if digest not in self.pipelines:
            return False
        self._sent(digest)
        self.pipelines[digest] = Opened.REFUSED if refused else Opened.OPEN
        self.proofs[digest] = proof
        return True

    def request(
        self,
        stream: int,
        digest: bytes,
        seed: int,
        steps: list[tuple[int, Any]],
        size: int,
        allocate: Allocate | None = None,
        until: int | None = None,
    ) -> None:
        """Ask for batches, of steps and their indices; each is expected to have ``size`` bytes.

        ``until``: the batched stage before which they are to end; None: they are to be whole.

        ``allocate``: of the pinned memory that a local worker is to write them to.
        """
        asked = [
            [
                step,
                messages.pack_indices(indices),
                self.blocks.promise(size, allocate if self.local else None),
            ]
            for step, indices in steps
        ]
        more = [] if until is None else [until]
        self.send(messages.MAKE, [stream, digest, seed, asked, *more])

    def allow(self, compression: Compression) -> str:
        """Say how batches may be coded, if that is not known there; what to tell the user, or "".

        Called again and again: while a pipeline is sent there is no way for anything else.
        """
        if not self._codings or self._sending is not None or self.large:
            return ""  # it knows of none, or no network lies between; or later
        allowed, problem = allow(compression, offered(), self._codings)
        if allowed == self._allowed:
            return ""
        self._allowed = allowed
        self.send(messages.CODINGS, [[str(one) for one in allowed.codings], allowed.always])
        return problem

    def drop(self, stream: int) -> None:
        """Nothing more is wanted of a stream."""
        self.send(messages.DROP, [stream])

    def end(self) -> None:
        """Close the connection: the thread that receives then ends."""
        self.dead = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already

    def forget_in_child(self) -> None:
        """In a process that was forked: this end is the parent's alone."""
        os.close(self._sock.detach())
        self.pinned.forget_in_child()

    def send(self, kind: int, header: Any, body: Any = (), descriptors: Any = ()) -> None:
        """Send one message, unless the other end is gone; one that cannot be sent ends the link."""
        if self.dead:
            return
        try:
            with self._send_lock:
                frame.send(self._sock, kind, header, body, descriptors, seal=self._seal)
        except FrameError as error:
            if not self.dead:  # else it was ended here, meanwhile
                logger.warning("%s: %s", self.name, error)
            self.end()

    # ------------------------------------------------------------------ receiving

    def receive(self) -> tuple[int, list[Any], tuple[int, ...]]:
        """The next message: its kind, its fields and the descriptors that came with it.

        Raises:
            FrameError: the other end went away, or sent what is no message.
            TimeoutError: it was silent.
        """
        received = self._reader.receive(self._bodies.allocate)
        kind, self._heard_at = received.kind, time.monotonic()
        if kind != ALIVE:
            self.passed_over = False
        self.wire_bytes = len(received.body)
        try:
            header = messages.fields(kind, received.header)
            if kind == messages.CODED:
                stream, step, structure, size, coding, cost = header
                self._bodies.decode(coding, received.body, size)
                header, kind = [stream, step, structure, size, NO_BLOCK, cost], messages.BATCH
        except FrameError:
            for descriptor in received.descriptors:
                os.close(descriptor)
            raise
        return kind, header, received.descriptors

    def arrays_of(self, number: int, size: int) -> Any:
        """Where the arrays of the batch that has just come are: bytes, or a tensor of bytes.

        Called with the lock of the `Makers` held.

        Raises:
            FrameError: the other end names a block that it was not given.
        """
        if number <= FIRST_PINNED and (block := self.pinned.take(number)) is not None:
            if size > block.size:
                raise FrameError(f"a batch of {size} bytes in a block of {block.size}")
            return block.base
        if number != NO_BLOCK:
            return self.blocks.root(number, size)
        return self._bodies.take(size)

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

    def close(self) -> None:
        """Release the socket; blocks live as long as the batches in them.

        What is pinned stays lent until it is known that the other end writes no more.
        Called with the lock of `Makers` held.
        """
        self.dead = True
        self._sock.close()
        self.blocks.close()


def _pid_of(sock: socket.socket) -> int:
    """The process at the other end of a connection of this machine; 0: unknown."""
    if sock.family != socket.AF_UNIX or sys.platform != "linux":
        return 0
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def smoothed(before: float | None, seconds: float) -> float:
    """`WorkerConnection.batch_seconds` after one more batch, which took the other end so long."""
    return seconds if before is None else before + _SMOOTHING * (seconds - before)
