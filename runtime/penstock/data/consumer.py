"""The end of the data plane in a training process: data workers connect to it and are asked.

One consumer serves all loaders of its process. It listens on TCP, and on an abstract Unix socket
for data workers on the same machine, which then put their batches into shared memory. Each
connection has one thread that receives; requests are sent by whoever makes room: the thread that
brought a batch, or the program when it takes one.

Losing anybody is never an error here: without data workers the program makes its batches itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.data import frame, handshake, messages
from penstock.data.errors import DataError, FrameError, HandshakeError, NotPortableError
from penstock.data.messages import SILENCE_SECONDS
from penstock.data.protocol import (
    CONSUMER_PATH,
    REPORT_SECONDS,
    ConsumerReply,
    ConsumerReport,
    InputOptions,
    ProtocolError,
    QueueState,
)
from penstock.data.reorder_buffer import Failure
from penstock.data.reporting import Reporter
from penstock.data.worker_connection import MAX_CREDITS, Opened, WorkerConnection

if TYPE_CHECKING:
    from penstock.data.batch_stream import BatchStream

logger = logging.getLogger(__name__)

MAX_LINKS: Final = 256
QUEUE_SECONDS: Final = 5.0
OPTIONS_SECONDS: Final = 10.0
SLOW_PEER_CREDITS: Final = 1
AHEAD_SECONDS: Final = 0.05
AHEAD_BYTES: Final = 16 << 20
"""Small, quick batches are asked for more at once: for so long, and at most so many bytes."""


class Counts:
    """What went through the queue, for the reports."""

    def __init__(self) -> None:
        self.arrived = self.taken = self.made_here = self.duplicates = 0
        self.lost = self.left_out = self.received_bytes = 0
        self.newest_left_out: deque[str] = deque(maxlen=8)
        self.waited_seconds = 0.0


class Consumer:
    """See the module's docstring. ``lock`` guards links, streams and their windows."""

    def __init__(
        self,
        *,
        token: str,
        host: str = "127.0.0.1",
        dispatcher: str | None = None,
        name: str = "",
        group: str = "train",
        index: int = 0,
        rank: int = 0,
        credits_: int = 4,
        share_memory: bool = True,
    ) -> None:
        if not token and not host.startswith("127."):
            raise DataError(
                f"host: {host}; without a token data workers are only served on loopback"
            )
        self.lock = threading.Condition()
        self.token = token
        self.name = f"{name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.group, self.index, self.rank = group, index, rank
        self.counts = Counts()
        self.abandoned: deque[int] = deque()  # numbers of streams; appended to by finalizers
        self.credits = credits_
        self._links: dict[str, WorkerConnection] = {}
        self._streams: dict[int, BatchStream] = {}
        self._next_stream = 0
        self._closing = threading.Event()
        self._options = InputOptions()
        self._told = threading.Event()  # or given up: the dispatcher has said what the options are
        self._refused: set[tuple[str, str]] = set()
        self._listeners = [socket.create_server((host, 0), backlog=64)]
        self.address = "{}:{}".format(*self._listeners[0].getsockname()[:2])
        self.local = ""
        if share_memory and sys.platform == "linux":
            self.local = f"penstock-data-{secrets.token_hex(8)}"
            nearby = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            nearby.bind("\0" + self.local)
            nearby.listen(64)
            self._listeners.append(nearby)
        for listener in self._listeners:
            self._start(self._accept, listener)
        if dispatcher is None:
            self._told.set()
        else:
            self._start(self._report, Reporter(dispatcher, token))

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name="penstock-data", daemon=True)
        thread.start()

    def close(self) -> None:
        """Say goodbye to all data workers."""
        self._closing.set()
        with self.lock:
            for link in self._links.values():
                link.end()
            self.lock.notify_all()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
            listener.close()

    @property
    def workers(self) -> list[str]:
        """The data workers that are connected."""
        with self.lock:
            return sorted(self._links)

    def options(self) -> InputOptions:
        """What the job says of its input now; at first waits for its dispatcher to say so.

        One that does not answer leaves it at the strictest: exactly once, and nothing left out.
        """
        if not self._told.wait(OPTIONS_SECONDS):
            logger.warning(
                "the dispatcher has not said in %.0f s what the job's input options are: "
                "every sample exactly once, and none left out",
                OPTIONS_SECONDS,
            )
            self._told.set()
        return self._options

    # ------------------------------------------------------------------ streams (lock held)

    def register(self, stream: BatchStream) -> None:
        """A stream that wants batches: give it its number and begin."""
        self._sweep()
        self._next_stream += 1
        stream.number = self._next_stream
        self._streams[stream.number] = stream
        self.pump(stream)

    def _sweep(self) -> None:
        """End the streams that the program has forgotten."""
        while self.abandoned:
            self.unregister(self.abandoned.popleft())

    def unregister(self, number: int) -> None:
        """Nothing more is wanted of a stream."""
        if (stream := self._streams.pop(number, None)) is None:
            return
        for link in self._links.values():
            if stream.window.asked_of(link.name):
                link.drop(number)

    def pump(self, stream: BatchStream) -> None:
        """Ask for what there is room for: lowest step first, of the one with the least to do.

        Nobody is asked before half of what was asked of it has been taken, and then for all of it
        in one message: several small ones would cost more than what they ask for.
        """
        digest = stream.packed.digest
        usable = []
        for link in self._links.values():
            if link.usable(digest):
                usable.append(link)
            elif digest not in link.pipelines:
                link.introduce(stream.packed, {one.packed.digest for one in self._streams.values()})
        if not usable:
            return
        seconds = [link.batch_seconds for link in usable if link.batch_seconds]
        fastest, window, size = min(seconds, default=0.0), stream.window, stream.batch_bytes
        rooms = []
        for link in usable:
            credits_ = self._credits_of(link, fastest, size)
            held = window.asked_of(link.name)
            if 2 * held <= credits_:
                rooms.append((link, held, credits_))
        now = time.monotonic()
        steps: dict[WorkerConnection, list[tuple[int, Any]]] = {}
        while rooms:
            link, held, credits_ = min(rooms, key=_fullness)
            if (asked := window.ask(link.name, now)) is None:
                break
            steps.setdefault(link, []).append(asked)
            rooms.remove((link, held, credits_))
            if held + 1 < credits_:
                rooms.append((link, held + 1, credits_))
        for link, wanted in steps.items():
            link.request(stream.number, digest, stream.seed, wanted, size)

    def _credits_of(self, link: WorkerConnection, fastest: float, size: int) -> int:
        """How many batches a data worker may be asked for at once: in proportion to its speed.

        A straggler (DLRover, section 5.4) holds fewer steps, so that fewer wait behind it.
        """
        if not link.batch_seconds or not fastest:
            return self.credits
        wanted = min(MAX_CREDITS, int(AHEAD_SECONDS / fastest), AHEAD_BYTES // max(1, size))
        credits_ = max(self.credits, wanted)
        return max(SLOW_PEER_CREDITS, round(credits_ * fastest / link.batch_seconds))

    def drop_overdue(self, stream: BatchStream, limit_seconds: float) -> None:
        """End the connection to whoever has had a step for too long: the user's code hangs."""
        for holder, step in stream.window.overdue(time.monotonic() - limit_seconds):
            if (link := self._links.get(holder)) is not None and not link.dead:
                logger.error(
                    "data worker %s has not made step %d within %.0f s: dropped",
                    holder,
                    step,
                    limit_seconds,
                )
                link.end()

    # ------------------------------------------------------------------ connections

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            try:
                sock, _ = listener.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                logger.error("data workers cannot connect: %s", error)
                self._closing.wait(1.0)
                continue
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        if sock.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform == "linux":
                user_timeout = int(SILENCE_SECONDS * 1000)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout)
        try:
            if len(self._links) >= MAX_LINKS:
                raise HandshakeError(f"{MAX_LINKS} data workers are connected already")
            peer = handshake.answer(sock, self.token, self.name)
            frame.set_timeouts(sock, SILENCE_SECONDS)
        except (HandshakeError, FrameError) as error:
            logger.warning("a connection to %s was refused: %s", self.address, error)
            sock.close()
            return
        link = WorkerConnection(sock, peer, self.credits)
        with self.lock:
            if link.name in self._links:
                logger.warning(
                    "data worker %s connected twice: the newer connection counts", link.name
                )
                self._forget(link.name, "a newer connection took its place")
            self._links[link.name] = link
            for stream in self._streams.values():
                self.pump(stream)
        how = "shared memory" if link.shares_memory else "TCP"
        logger.info("data worker %s joined (%s)", link.name, how)
        why = "it left"
        try:
            while True:
                self._handle(link, *link.receive())
        except TimeoutError:
            why = f"it was silent for {SILENCE_SECONDS:.0f} s"
        except DataError as error:
            why = str(error)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            why = f"it sent what cannot be understood: {error!r}"
            logger.debug("data worker %s", link.name, exc_info=error)
        finally:
            with self.lock:
                if self._links.get(link.name) is link:
                    self._forget(link.name, why)
            link.close()

    def _forget(self, name: str, why: str) -> None:
        """A data worker is gone: what it had not made goes to others."""
        link = self._links.pop(name)
        link.end()
        returned = 0
        for stream in self._streams.values():
            returned += stream.window.gone(name, crashed=not link.leaving)
        if link.leaving:
            logger.info("data worker %s left", name)
        elif not self._closing.is_set():
            logger.warning(
                "data worker %s is lost (%s); %d steps go to others", name, why, returned
            )
        for stream in self._streams.values():
            self.pump(stream)
        self.lock.notify_all()

    # ------------------------------------------------------------------ messages

    def _handle(self, link: WorkerConnection, kind: int, values: list[Any]) -> None:
        if kind == messages.ALIVE:
            return
        if kind == messages.BATCH:
            self._batch(link, *values)
            return
        with self.lock:
            if kind == messages.OPENED:
                self._opened(link, *values)
            elif kind == messages.FAILED:
                self._failed(link, *values)
            elif kind == messages.DROPPED:
                number, step, block = values
                link.unused(block)
                if (stream := self._streams.get(number)) is not None:
                    stream.window.given_back(link.name, step)
                    self.pump(stream)
            elif kind == messages.LEAVING:
                link.leaving = True
            else:
                raise FrameError(f"a data worker sent a message of kind {kind}")
            self.lock.notify_all()

    def _batch(
        self,
        link: WorkerConnection,
        number: int,
        step: int,
        structure: Any,
        size: int,
        block: int,
        seconds: float,
    ) -> None:
        root = link.arrays_of(block, size)
        try:
            batch = link.layout(structure).batch(root, size)
        except NotPortableError as error:
            with self.lock:
                self._failed(link, number, step, messages.NO_BLOCK, str(error), "")
            return
        finally:
            del root
        link.took(seconds)
        with self.lock:
            self.counts.received_bytes += size
            stream = self._streams.get(number)
            if stream is None or not stream.window.arrived(link.name, step, batch):
                self.counts.duplicates += 1
                return
            self.counts.arrived += 1
            stream.note_size(size)
            if stream.window.position == step:
                self.lock.notify_all()

    def _opened(self, link: WorkerConnection, digest: bytes, problem: str) -> None:
        if digest not in link.pipelines:
            return
        if problem:
            link.pipelines[digest] = Opened.REFUSED
            self._say_once(link.name, f"cannot open the pipeline and is not used: {problem}")
        else:
            link.pipelines[digest] = Opened.OPEN
        for stream in self._streams.values():
            self.pump(stream)

    def _failed(
        self, link: WorkerConnection, number: int, step: int, block: int, message: str, trace: str
    ) -> None:
        link.unused(block)
        if (stream := self._streams.get(number)) is not None:
            self._say_once(link.name, f"could not make a batch: {message}")
            stream.window.failed(step, Failure(link.name, message, trace))
            self.pump(stream)
            self.lock.notify_all()

    def _say_once(self, name: str, what: str) -> None:
        if (name, what) not in self._refused and len(self._refused) < 1000:
            self._refused.add((name, what))
            logger.warning("data worker %s %s", name, what)

    # ------------------------------------------------------------------ reports

    def _report(self, reporter: Reporter) -> None:
        queue, since, before = QueueState(), time.monotonic(), (0, 0, 0, 0, 0.0)
        while True:
            closing = self._closing.is_set()
            now = time.monotonic()
            if now - since >= QUEUE_SECONDS:
                span = now - since
                counts = self.counts
                after = (
                    counts.arrived, counts.taken, counts.made_here, counts.received_bytes,
                    counts.waited_seconds,
                )  # fmt: skip
                arrived, taken, made, received, waited = (
                    b - a for a, b in zip(before, after, strict=True)
                )
                queue = QueueState(
                    enqueued_per_second=(arrived + made) / span,
                    dequeued_per_second=(taken + made) / span,
                    received_bytes_per_second=received / span,
                    wait_share=min(1.0, max(0.0, waited / span)),
                    ready=sum(stream.window.ready for stream in list(self._streams.values())),
                )
                since, before = now, after
            report = ConsumerReport(
                name=self.name,
                address=self.address,
                local=self.local,
                group=self.group,
                index=self.index,
                rank=self.rank,
                taken=self.counts.taken + self.counts.made_here,
                lost=self.counts.lost,
                left_out=self.counts.left_out,
                newest_left_out=tuple(self.counts.newest_left_out),
                workers=len(self._links),
                queue=queue,
                closed=closing,
            )
            try:
                reply = reporter.report(CONSUMER_PATH, report, ConsumerReply)
                if reply is not None:
                    self._options = reply.options
                    self._told.set()
            except ProtocolError as error:
                logger.warning("the dispatcher at %s: %s", reporter.address, error)
            if closing:
                reporter.close()
                return
            with self.lock:
                self._sweep()
            self._closing.wait(REPORT_SECONDS)


def _fullness(room: tuple[WorkerConnection, int, int]) -> float:
    return room[1] / room[2]
