"""A data worker: makes the batches that training processes ask for, and keeps nothing.

It asks the dispatcher whom to serve, connects to them, opens the pipelines that they send (signed
with the job's token) and answers each request exactly once. Batches are made in the main thread, in
the order of the requests, and sent from there; a thread for each connection takes requests in. On
SIGTERM it takes no more, finishes the batch in hand, returns the rest and exits 0. It may be killed
at any time: whoever waits for its batches has them made elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from penstock.base.listener import split_address
from penstock.data.complaints import Complaints
from penstock.data.dataset_watch import DatasetWatch, KeepsStateError
from penstock.data.errors import (
    DataError,
    FrameError,
    HandshakeError,
    TooLargeError,
)
from penstock.data.making import MakingClock
from penstock.data.pipeline import Pipeline, open_pipeline, position_of
from penstock.data.protocol import (
    REPORT_SECONDS,
    WORKER_PATH,
    ConsumerEntry,
    ProtocolError,
    WorkerReply,
    WorkerReport,
)
from penstock.data.reporting import Reporter
from penstock.data.serving.batch_making import make, pack, placed, prepare, reopening
from penstock.data.serving.batch_memory import BatchMemory
from penstock.data.serving.consumer_connection import (
    ConsumerConnection,
    Request,
    block_of,
    lent_block,
    naming,
    put,
)
from penstock.data.serving.usage import cpu_seconds, memory_bytes
from penstock.data.streams.pipeline import (
    NotRepeatableError,
    StopHostingError,
    StreamEndedError,
    StreamPipeline,
)
from penstock.data.transport import frame, handshake, messages
from penstock.data.transport.batch_codec import Packer
from penstock.data.transport.blocks import map_shared
from penstock.data.transport.messages import (
    ALIVE_SECONDS,
    NO_BLOCK,
    OWN_BLOCK,
    SILENCE_SECONDS,
)
from penstock.data.transport.raised import describe, text_of

logger = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 0.5
"""Unless something comes, which ends the wait."""
RETRY_SECONDS: Final = 1.0
REFUSED_RETRY_SECONDS: Final = 30.0
MAX_QUEUED: Final = 4096


class DataWorker:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        token: str,
        dispatcher: str | None = None,
        name: str = "",
        node: str = "",
        rank: int = 0,
        incarnation: int = 0,
        share_memory: bool = True,
        consumers: tuple[ConsumerEntry, ...] = (),
        explain: Callable[[Exception], bytes] | None = None,
    ) -> None:
        """``consumers``: whom to serve where there is no dispatcher to say.

        ``explain``: what to tell of an error of the user's code beside its text.
        """
        self._explain = explain or (lambda error: b"")
        self.name = f"{name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._token = token
        self._node, self._rank, self._incarnation = node, rank, incarnation
        self._share_memory = share_memory
        self._consumers = consumers
        self._reporter = Reporter(dispatcher, token) if dispatcher else None
        self._lines: dict[str, ConsumerConnection] = {}
        self._connecting: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._complaints = Complaints()
        self._queue: deque[Request] = deque()
        self._changed = threading.Condition()
        self._leaving = False
        self._level = logging.INFO  # of its coming and going
        self._opening: deque[tuple[ConsumerConnection, bytes, Any, memoryview]] = deque()
        self._packer = Packer()
        self.memory = BatchMemory()
        self.batches = 0
        self._clock = MakingClock()
        self._busy_seconds = 0.0
        self._measured = (time.monotonic(), cpu_seconds())

    def leave(self, *_: object) -> None:
        """Take no more requests, finish and end; a signal handler, so it waits for no lock."""
        self._leaving = True
        if self._changed.acquire(blocking=False):
            try:
                self._changed.notify_all()  # a wait in the main thread goes on after a signal
            finally:
                self._changed.release()

    def run(self) -> None:
        """Work until told to leave."""
        keeper = threading.Thread(target=self._keep, name="penstock-keeper", daemon=True)
        keeper.start()
        while not self._leaving:
            with self._changed:
                if not self._opening and not self._queue:
                    self._changed.wait(IDLE_SECONDS)
                opening = self._opening.popleft() if self._opening else None
                request = self._queue.popleft() if self._queue and not opening else None
            if opening is not None:
                self._open(*opening)
            elif request is not None:
                began = time.perf_counter()
                can_share, private = request.line.shares_memory, request.place is not None
                find = partial(block_of, request)
                with self.memory.of_batch(find, can_share=can_share, private=private):
                    self._answer(request)
                self._busy_seconds += time.perf_counter() - began
        self._go()

    # ------------------------------------------------------------------ in the main thread

    def _open(
        self, line: ConsumerConnection, digest: bytes, signature: Any, blob: memoryview
    ) -> None:
        problem = ""
        try:
            opened = open_pipeline(blob, signature, self._token)
            if isinstance(opened, StreamPipeline):  # each stream has a dataset of its own
                opened = replace(opened, fresh=reopening(opened, blob, signature, self._token))
            elif isinstance(opened, Pipeline):
                prepare(opened, self._rank)
                if opened.watched and not line.local:
                    line.watches[digest] = DatasetWatch(opened.dataset)
            line.pipelines[digest] = placed(opened, self.memory)
            if (torch := sys.modules.get("torch")) is not None:
                torch.set_num_threads(1)  # one core makes a batch; more workers make more
        except DataError as error:
            logger.error("the pipeline of %s: %s", line.name, error)
            problem = text_of(str(error), messages.MAX_TEXT)
        self._reply(line, messages.OPENED, [digest, problem])

    def _answer(self, request: Request) -> None:
        line = request.line
        self._clock.begin()
        pipeline = line.pipelines.get(request.digest)
        if pipeline is None:
            self._fail(request, "the pipeline is not open here", "")
            return
        try:
            batch = make(pipeline, request, self._packer, lambda: self._leaving)
            kind, packed = pack(self._packer, batch, local=line.local)
            del batch
        except (StreamEndedError, NotRepeatableError) as error:
            problem = "" if isinstance(error, StreamEndedError) else str(error)
            text = text_of(problem, messages.MAX_TEXT)
            self._reply(line, messages.ENDED, [*naming(request), text])
            return
        except StopHostingError:
            self._reply(line, messages.DROPPED, naming(request))
            return
        except KeepsStateError as error:
            text = text_of(str(error), messages.MAX_TEXT)
            self._reply(line, messages.OPENED, [request.digest, text])
            self._reply(line, messages.DROPPED, naming(request))
            self._return_queued(line, request.digest)
            return
        except Exception as error:  # noqa: BLE001 - the user's code, whatever it raises
            index = position_of(error)
            where = "" if index is None else f"sample {index!r}: "
            trace = traceback.format_exc(limit=-20)
            message = f"{where}{describe(error)}"
            self._fail(request, message, trace, self._explain(error))
            return
        self.batches += 1
        cost = list(self._clock.end())
        head = [request.stream, request.step, packed.structure, packed.size]
        try:
            if put(request, packed, self.memory, pinnable=kind == messages.BATCH):
                line.send(kind, [*head, request.block, cost])
                return
            if request.block != NO_BLOCK:  # it does not fit: the block is free again
                logger.debug("a batch of %d bytes does not fit its block", packed.size)
                line.send(messages.DROPPED, [0, 0, request.block])
                request.block = NO_BLOCK  # it may be another request's by now
            if line.offer(packed, self.memory):
                line.send(kind, [*head, OWN_BLOCK, cost])
            elif kind == messages.BATCH:
                line.send_batch(head, packed, cost)
            else:
                line.send(kind, [*head, NO_BLOCK, cost], packed.parts, packed.size)
        except TooLargeError as error:
            self._fail(request, str(error), "")
        except FrameError as error:
            self._lost(line, error)

    def _fail(self, request: Request, message: str, trace: str, error: bytes = b"") -> None:
        limit = messages.MAX_TEXT
        text = [text_of(message[:limit], limit), text_of(trace[-limit:], limit)]
        header = [request.stream, request.step, request.block, *text, error]
        self._reply(request.line, messages.FAILED, header)

    def _reply(self, line: ConsumerConnection, kind: int, header: Any) -> None:
        try:
            line.send(kind, header)
        except FrameError as error:
            self._lost(line, error)

    def _go(self) -> None:
        """Return what was not begun, and let everything that was sent arrive."""
        if self._reporter is not None:
            self._report(leaving=True)
        with self._changed:
            lines, queued = list(self._lines.values()), list(self._queue)
            self._queue.clear()
        for line in lines:
            self._reply(line, messages.LEAVING, [])
        for request in queued:
            self._reply(request.line, messages.DROPPED, naming(request))
        for line in lines:
            with contextlib.suppress(OSError):
                line.sock.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + CONNECT_SECONDS
        with self._changed:  # the other end closes when it has read everything
            while self._lines and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
        text = "data worker %s leaves after %d batches"
        logger.log(self._level, text, self.name, self.batches)

    # ------------------------------------------------------------------ connections

    def _serve(self, line: ConsumerConnection) -> None:
        """Take in what one training process sends, until it is gone."""
        reader = frame.Reader(line.sock, line.seals.receiving if line.seals else None)
        try:
            while True:
                try:
                    received = reader.receive(lambda size: memoryview(bytearray(size)))
                except TimeoutError:
                    continue  # it wants nothing; if it were gone, the heartbeat would fail
                header = messages.fields(received.kind, received.header)
                self._take(line, received, header)
        except (DataError, OSError, ValueError, TypeError) as error:
            self._lost(line, error)
        finally:
            self._end(line)

    def _take(self, line: ConsumerConnection, received: frame.Frame, header: list[Any]) -> None:
        kind = received.kind
        if kind == messages.BLOCK and len(received.descriptors) == 1:
            number, size = header
            line.blocks[number] = map_shared(received.descriptors[0], size)
            return
        for descriptor in received.descriptors:  # nobody asked for them
            os.close(descriptor)
        if kind == messages.MAKE:
            stream, digest, seed, steps = header
            requests = [
                Request(
                    line,
                    stream,
                    step,
                    digest,
                    seed,
                    messages.unpack_indices(indices),
                    *lent_block(block),
                )
                for step, indices, block in steps
            ]
            with self._changed:
                if len(self._queue) + len(requests) > MAX_QUEUED:
                    raise FrameError(f"more than {MAX_QUEUED} requests at once")
                self._queue += requests
                self._changed.notify_all()
            if self._leaving:  # too late: `_go` may have looked already
                self._return_queued(line)
        elif kind == messages.DROP:
            line.streams.drop(header[0])
            with self._changed:
                dropped = [r for r in self._queue if r.line is line and r.stream == header[0]]
                for request in dropped:
                    self._queue.remove(request)
            for request in dropped:
                line.send(messages.DROPPED, naming(request))
        elif kind == messages.PIPELINE:
            with self._changed:
                self._opening.append((line, *header, received.body))
                self._changed.notify_all()
        elif kind == messages.FORGET:
            line.pipelines.pop(header[0], None)
            line.watches.pop(header[0], None)
        elif kind == messages.LEND:
            line.lent.put(header[0])
        elif kind == messages.UNMAP:
            for number in header[0]:
                line.blocks.pop(number, None)
        else:
            raise FrameError(f"a message of kind {kind}")

    def _return_queued(self, line: ConsumerConnection, digest: bytes | None = None) -> None:
        with self._changed:
            late = [
                request
                for request in self._queue
                if request.line is line and digest in (None, request.digest)
            ]
            for request in late:
                self._queue.remove(request)
        for request in late:
            self._reply(line, messages.DROPPED, naming(request))

    def _lost(self, line: ConsumerConnection, error: Exception) -> None:
        with self._changed:
            known = self._lines.get(line.name) is line
        if known and not self._leaving:
            logger.log(self._level, "the connection to %s is over: %s", line.name, error)
        with contextlib.suppress(OSError):
            line.sock.shutdown(socket.SHUT_RDWR)
        if line.on_end is not None:  # the user's code may have closed it, and nobody wakes `_serve`
            line.on_end()

    def _end(self, line: ConsumerConnection) -> None:
        with self._changed:
            if self._lines.get(line.name) is line:
                del self._lines[line.name]
            for request in [r for r in self._queue if r.line is line]:
                self._queue.remove(request)
            self._not_before[line.name] = time.monotonic() + RETRY_SECONDS
            self._changed.notify_all()
        line.sock.close()
        line.blocks.clear()
        line.pipelines.clear()
        line.streams.drop_all()
        if line.on_end is not None:
            line.on_end()

    # ------------------------------------------------------------------ the keeper's thread

    def _keep(self) -> None:
        """Report, connect to whom there is to serve, and show that this process is alive."""
        while not self._leaving:
            entries = self._consumers if self._reporter is None else self._report(leaving=False)
            for entry in entries:
                if self._wanted(entry):  # apart: one that does not answer must not hold up others
                    self._connecting.add(entry.name)
                    threading.Thread(
                        target=self._connect, args=(entry,), name="penstock-connect", daemon=True
                    ).start()
            for name in self._not_before.keys() - {entry.name for entry in entries}:
                self._not_before.pop(name, None)
            with self._changed:
                lines = list(self._lines.values())
            for line in lines:
                if time.monotonic() - line.sent_at > ALIVE_SECONDS and not line.sending.locked():
                    self._reply(line, messages.ALIVE, [])
            time.sleep(REPORT_SECONDS)

    def _report(self, *, leaving: bool) -> tuple[ConsumerEntry, ...]:
        assert self._reporter is not None
        busy, self._busy_seconds = self._busy_seconds, 0.0
        before, after = self._measured, (time.monotonic(), cpu_seconds())
        self._measured = after
        report = WorkerReport(
            name=self.name,
            node=self._node,
            batches=self.batches,
            busy_share=min(1.0, busy / REPORT_SECONDS),
            rank=self._rank,
            incarnation=self._incarnation,
            cpu_cores=max(0.0, (after[1] - before[1]) / max(after[0] - before[0], 1e-3)),
            memory_bytes=memory_bytes(),
            leaving=leaving,
        )
        try:
            reply = self._reporter.report(WORKER_PATH, report, WorkerReply)
        except ProtocolError as error:
            logger.warning("the dispatcher at %s: %s", self._reporter.address, error)
            return ()
        if reply is None:
            return ()
        return reply.consumers

    def _wanted(self, entry: ConsumerEntry) -> bool:
        with self._changed:
            if entry.name in self._lines or entry.name in self._connecting or self._leaving:
                return False
        return time.monotonic() >= self._not_before.get(entry.name, 0.0)

    def _connect(self, entry: ConsumerEntry) -> None:
        try:
            self._join(entry)
        finally:
            self._connecting.discard(entry.name)

    def _join(self, entry: ConsumerEntry) -> None:
        sock = None
        try:
            sock, same_host = self._socket(entry)
            peer = handshake.call(sock, self._token, self.name, same_host=same_host)
            frame.set_timeouts(sock, SILENCE_SECONDS)
        except (DataError, OSError, ValueError) as error:
            if sock is not None:
                sock.close()
            refused = isinstance(error, HandshakeError)
            pause = REFUSED_RETRY_SECONDS if refused else RETRY_SECONDS
            self._not_before[entry.name] = time.monotonic() + pause
            level = logging.ERROR if refused else logging.WARNING
            subject = f"cannot serve {entry.name} at {entry.address}:"
            self._complaints.add(subject, str(error), level)
            return
        how = "shared memory" if same_host else "TCP"
        if self.serve(ConsumerConnection(entry.name, sock, same_host, seals=peer.seals)):
            logger.info("serving %s at %s (%s)", entry.name, entry.address, how)

    def serve(self, line: ConsumerConnection) -> bool:
        """Answer what comes over a connection; False when it is too late for that."""
        with self._changed:
            if self._leaving:
                line.sock.close()
                return False
            self._lines[line.name] = line
        if line.local:  # the program's log is no place for what comes and goes with each epoch
            self._level = logging.DEBUG
        threading.Thread(
            target=self._serve, args=(line,), name="penstock-line", daemon=True
        ).start()
        return True

    def _socket(self, entry: ConsumerEntry) -> tuple[socket.socket, bool]:
        """Shared memory where the other end's abstract socket can be reached, else TCP."""
        if entry.local and self._share_memory and sys.platform == "linux":
            nearby = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            nearby.settimeout(CONNECT_SECONDS)
            try:
                nearby.connect("\0" + entry.local)
            except OSError:
                nearby.close()  # another machine, or another network namespace
            else:
                return nearby, True
        sock = socket.create_connection(split_address(entry.address), CONNECT_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            user_timeout = int(SILENCE_SECONDS * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout)
        return sock, False


def work(worker: DataWorker) -> None:
    """Run a data worker as the main program: SIGTERM and SIGINT make it leave."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, worker.leave)
    worker.run()
