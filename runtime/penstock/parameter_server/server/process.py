"""One parameter server as a process: ``penstock ps``.

What it holds and answers is in `penstock.parameter_server.server.shard`; here are its sockets and
its life. Each data connection has a thread, which reads a request, has it answered and sends the
answer. Two threads talk to the trainer, each with a connection of its own: one whose reports the
trainer holds until it has news, and one that reports at once what has changed here. A trainer that
is away changes nothing: the server goes on as it was last told, and ends itself only after
`GIVE_UP_SECONDS`.

In a pod it is ready, by a port of its own, while it holds a share of the parameters. On SIGTERM it
says that it is asked to go, and stays until the trainer has moved what it holds.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import psutil

from penstock.base import ports
from penstock.base.descriptors import raise_descriptor_limit
from penstock.base.listener import address_of, create_listener
from penstock.base.log_limit import LogLimit
from penstock.data.allocator import keep_freed_memory
from penstock.data.errors import DataError, TooLargeError
from penstock.data.protocol import ProtocolError
from penstock.data.reporting import Reporter
from penstock.data.serving.readiness import Readiness, close_listener
from penstock.data.transport import frame, handshake
from penstock.data.transport.newcomers import Newcomers
from penstock.data.transport.seal import Seal, Seals
from penstock.job.protocol import MAX_MESSAGE_BYTES, Usage
from penstock.parameter_server.connection import tuned
from penstock.parameter_server.layout import ServerId
from penstock.parameter_server.protocol import (
    SERVER_PATH,
    ServerOrder,
    ServerReply,
    ServerReport,
    ServerStage,
)
from penstock.parameter_server.server.requests import Response
from penstock.parameter_server.server.settings import ServerSettings
from penstock.parameter_server.server.shard import ServerShard, ServerStatus
from penstock.parameter_server.wire import TIMEOUT_SECONDS, UNAVAILABLE, Unavailable

logger = logging.getLogger(__name__)

WAIT_SECONDS: Final = 1.0
"""How long the trainer may hold a report: figures are as old as that at most."""
RETRY_SECONDS: Final = 0.2
GIVE_UP_SECONDS: Final = 900.0
MAX_CONNECTIONS: Final = 2048
MAX_NEWCOMERS: Final = 64
"""All workers connect at once where a layout is new."""
KEPT_BUFFER_BYTES: Final = 8 << 20
DRAINED, REFUSED, FAILED, KILLED = 0, 1, 1, 128 + signal.SIGTERM


class ParameterServer:
    """See the module's docstring: `start` it, `wait` for its exit code, `close` it."""

    def __init__(self, settings: ServerSettings) -> None:
        self.id = ServerId(
            rank=settings.rank, incarnation=settings.incarnation, nonce=secrets.token_hex(8)
        )
        self.address = ""
        self._settings = settings
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._code = DRAINED
        self._draining = False
        self._shard = ServerShard(
            self.id, settings.token, self._changed.set, settings.memory_limit_bytes
        )
        self._reporting = threading.Lock()
        self._serial = 0
        self._told: object = None
        self._older_trainer = ""  # the one of the release before, if that is what there is
        self._answered = time.monotonic()
        self._usage = _Meter()
        self._ready = Readiness(settings.ready_host, ports.PARAMETER_SERVER)
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._connecting = threading.Lock()
        self._newcomers = Newcomers(MAX_NEWCOMERS)
        self._refusals, self._deaf = LogLimit(), LogLimit()
        self._callers = itertools.count()

    def start(self) -> None:
        """Listen, and report to the trainer. Raises OSError: it cannot listen there."""
        host = self._settings.host
        self._listener = create_listener(host, 0)
        self.address = address_of(self._listener, host)
        logger.info("parameter server %s takes connections at %s", self.id, self.address)
        for name, target in (
            ("penstock-accept", self._accept),
            ("penstock-report", self._report),
            ("penstock-news", self._tell_news),
        ):
            threading.Thread(target=self._vitally, args=(target,), name=name, daemon=True).start()

    def drain(self) -> None:
        """Ask the trainer to let this server go; it ends when it holds nothing, or in time."""
        self._draining = True
        self._changed.set()

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code, once it is time to end; None after ``timeout`` seconds."""
        return self._code if self._ended.wait(timeout) else None

    def close(self) -> None:
        """End all connections and threads."""
        self._end(self._code)
        self._ready.show(False)
        if self._listener is not None:
            close_listener(self._listener)
        with self._connecting:
            connections = list(self._connections)
        for sock in connections:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._shard.close()

    def _end(self, code: int, why: str = "") -> None:
        if not self._ended.is_set():
            self._code = code
            if why:
                logger.log(logging.INFO if code == DRAINED else logging.ERROR, "%s", why)
        self._ended.set()
        self._changed.set()

    def _vitally(self, work: Callable[[], None]) -> None:
        """Do what no server lives without: where that fails, it ends instead of being half dead."""
        try:
            work()
        except Exception:
            logger.exception("this server cannot go on, and ends: another may take its place")
            self._end(FAILED)

    # ------------------------------------------------------------------ data connections

    def _accept(self) -> None:
        assert self._listener is not None
        while not self._ended.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if not self._ended.wait(RETRY_SECONDS):
                    message = "cannot take connections: %s; trying on"
                    self._deaf.log(logger, logging.ERROR, message, error)
                continue
            with self._connecting:
                full = len(self._connections) >= MAX_CONNECTIONS
                if not full:
                    self._connections.add(sock)
            if full:
                message = "more than %d connections: one is refused"
                self._refusals.log(logger, logging.ERROR, message, MAX_CONNECTIONS)
                sock.close()
                continue
            self._newcomers.admit(sock)
            try:
                threading.Thread(
                    target=self._serve, args=(sock,), name="penstock-line", daemon=True
                ).start()
            except RuntimeError as error:  # the pod may have no more threads
                self._refusals.log(logger, logging.ERROR, "a connection is refused: %s", error)
                self._drop(sock)

    def _serve(self, sock: socket.socket) -> None:
        caller = f"connection {next(self._callers)}"
        try:
            tuned(sock)
            peer = handshake.answer(sock, self._settings.token, str(self.id))
            self._newcomers.remove(sock)
            caller = f"{peer.name} ({caller})"
            frame.set_timeouts(sock, TIMEOUT_SECONDS)
            self._converse(sock, caller, peer.seals)
        except (DataError, OSError) as error:
            logger.debug("%s: %s", caller, error)
        finally:
            self._shard.left(caller)
            self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        self._newcomers.remove(sock)
        with self._connecting:
            self._connections.discard(sock)
        sock.close()

    def _converse(self, sock: socket.socket, caller: str, seals: Seals | None) -> None:
        reader = frame.Reader(sock, seals.receiving if seals else None)
        seal, buffer = seals.sending if seals else None, _Buffer()
        while not self._ended.is_set():
            try:
                request = reader.receive(buffer.allocate)
            except TimeoutError:
                continue  # it asks nothing now; one that is gone is noticed by the kernel
            answer = self._shard.answer(caller, request.kind, request.header, request.body)
            try:
                _send(sock, answer, seal)
            except TooLargeError as error:
                _send(sock, Response(UNAVAILABLE, [Unavailable.BAD.value, str(error)]), seal)

    # ------------------------------------------------------------------ the trainer

    def _report(self) -> None:
        """Report again and again, and carry out what the trainer answers when it has news."""
        reporter = self._reporter()
        while not self._ended.is_set():
            began, seen = time.monotonic(), self._shard.status().seen_revision
            reply = self._ask(reporter, WAIT_SECONDS)
            if reply is None:
                self._check_away()
                self._ended.wait(RETRY_SECONDS)
                continue
            self._apply_orders(reply)
            if reply.revision == seen and time.monotonic() - began < RETRY_SECONDS:
                self._ended.wait(RETRY_SECONDS)  # it holds no reports
        reporter.close()

    def _tell_news(self) -> None:
        """Report at once what has changed here."""
        reporter = self._reporter()
        while True:
            self._changed.wait()
            self._changed.clear()
            if self._ended.is_set():
                break
            while self._news(self._shard.status()) != self._told:
                reply = self._ask(reporter, 0.0)
                if reply is not None:
                    self._apply_orders(reply)
                elif self._ended.wait(RETRY_SECONDS):
                    break
        reporter.close()

    def _reporter(self) -> Reporter:
        return Reporter(
            self._settings.trainer,
            self._settings.token,
            who="trainer",
            max_bytes=MAX_MESSAGE_BYTES,
        )

    def _news(self, status: ServerStatus) -> object:
        """What the trainer wants to know at once."""
        halted = status.stage in (ServerStage.HALTED, ServerStage.FROZEN)
        return (
            status.stage,
            status.layout.number if status.layout is not None else 0,
            status.built,
            status.snapshot,
            status.uncopied,
            status.trouble,
            status.applied if halted else None,
            self._draining,
        )

    def _ask(self, reporter: Reporter, wait_seconds: float) -> ServerReply | None:
        with self._reporting:  # so that a higher number is a newer state
            self._serial += 1
            status = self._shard.status()
            news = self._news(status)
            report = ServerReport(
                server=self.id,
                serial=self._serial,
                address=self.address,
                node=self._settings.node,
                pod=self._settings.pod,
                stage=status.stage,
                layout=status.layout,
                built=status.built,
                snapshot=status.snapshot,
                uncopied=status.uncopied,
                applied=status.applied,
                spec=status.spec,
                data=status.data,
                draining=self._draining,
                memory_limit_bytes=self._settings.memory_limit_bytes,
                usage=self._usage.read(),
                figures=status.figures,
                trouble=status.trouble,
                seen_revision=status.seen_revision,
                wait_seconds=wait_seconds,
            )
            self._told = news
        try:
            reply = self._post(reporter, report)
        except ProtocolError as error:
            logger.error("the trainer's answer is unreadable: %s", error)
            reply = None
        if reply is None:
            self._told = None
        else:
            self._answered = time.monotonic()
        return reply

    def _post(self, reporter: Reporter, report: ServerReport) -> ServerReply | None:
        """Report in words that the trainer knows, which may be of the release before."""
        plain = report.for_release_before()
        known = plain if self._older_trainer else report
        reply = reporter.report(SERVER_PATH, known, ServerReply)
        if reply is None and reporter.misunderstood and known != plain:
            reply = reporter.report(SERVER_PATH, plain, ServerReply)
            # Reports of several threads may find it out at once.
            if reply is not None and reply.trainer != self._older_trainer:
                self._older_trainer = reply.trainer
                logger.warning(
                    "the trainer at %s is of an older release: no checkpoint is saved while this "
                    "server has no memory for a copy; give it more, or update the trainer",
                    self._settings.trainer,
                )
        elif reply is not None and reply.trainer != self._older_trainer:
            self._older_trainer = ""  # another one, that may know more
        return reply

    def _apply_orders(self, reply: ServerReply) -> None:
        if reply.finished:
            self._end(DRAINED, "the job is done")
        elif reply.order is ServerOrder.REFUSED:
            self._end(REFUSED, f"the trainer refused this server: {reply.message}")
        else:
            self._shard.apply_orders(reply)
            empty = self._shard.status().stage is ServerStage.EMPTY
            self._ready.show(not empty)
            if self._draining and empty and reply.order is ServerOrder.IDLE:
                self._end(DRAINED, "everything has been moved to other servers")

    def _check_away(self) -> None:
        if self._draining and self._shard.status().stage is ServerStage.EMPTY:
            self._end(DRAINED, "nothing is here, and the trainer does not answer")
        if time.monotonic() - self._answered > GIVE_UP_SECONDS:
            self._end(
                REFUSED,
                f"the trainer at {self._settings.trainer} was away for {GIVE_UP_SECONDS:.0f} s",
            )


def run(settings: ServerSettings) -> int:
    """Be a server until it is time to end; the exit code. For the main thread.

    Raises:
        OSError: it cannot listen on its address.
    """
    keep_freed_memory()
    raise_descriptor_limit()
    # Not by blocking the signals: libraries have threads of their own before this is called (those
    # of NumPy's linear algebra), and one that does not block them would end the process.
    told, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    server = ParameterServer(settings)
    server.start()

    def drain() -> None:
        told.recv(1)
        logger.info(
            "asked to go: for %.0f s others may take over what is here", settings.grace_seconds
        )
        server.drain()
        if server.wait(settings.grace_seconds) is None:
            server._end(KILLED, "going with what is here: nobody has taken it over in time")

    threading.Thread(target=drain, name="penstock-drain", daemon=True).start()
    code = server.wait()
    server.close()
    return KILLED if code is None else code


class _Buffer:
    """Memory for one request at a time; a large one is not kept."""

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)

    def allocate(self, size: int) -> memoryview:
        if size > KEPT_BUFFER_BYTES:
            return np.empty(size, np.uint8).data
        if size > len(self._kept):
            self._kept = np.empty(size, np.uint8)
        return self._kept[:size].data


class _Meter:
    """CPU of this process since it was last read, and its memory."""

    def __init__(self) -> None:
        self._process = psutil.Process(os.getpid())
        self._before = (time.monotonic(), time.process_time())
        self._usage = Usage(cpu_cores=0.0, memory_bytes=self._process.memory_info().rss)

    def read(self) -> Usage:
        now = (time.monotonic(), time.process_time())
        span = now[0] - self._before[0]
        if span >= WAIT_SECONDS / 2:
            cores = max(0.0, now[1] - self._before[1]) / span
            self._usage = Usage(cpu_cores=cores, memory_bytes=self._process.memory_info().rss)
            self._before = now
        return self._usage


def _send(sock: socket.socket, answer: Response, seal: Seal | None) -> None:
    frame.send(sock, answer.kind, answer.header, answer.body, (), answer.size, seal)
