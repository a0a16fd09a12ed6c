"""The end of the data plane in a training process: data workers connect to it and are asked.

One consumer serves all loaders of its process. It listens on TCP, and on an abstract Unix socket
for data workers on the same machine, which then put their batches into shared memory. Each
connection has one thread that receives (`penstock.data.queue.receiving`), few of them before it is
known who is at the other end (`penstock.data.transport.newcomers`); requests are sent by
whoever makes room: the thread that brought a batch, or the program when it takes one.
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
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from penstock.base.listener import (
    address_of,
    create_listener,
    create_local_listener,
    is_loopback,
)
from penstock.base.log_limit import LogLimit
from penstock.data.cache import job_cache
from penstock.data.consuming.partition_notes import PartitionNotes
from penstock.data.cores import usable_cores
from penstock.data.errors import DataError, FrameError, HandshakeError
from penstock.data.making import Making
from penstock.data.protocol import (
    CONSUMER_PATH,
    MOST_CUT,
    REPORT_SECONDS,
    ConsumerReply,
    ConsumerReport,
    InputOptions,
    InputTotals,
    MakingTotals,
    ProtocolError,
    QueueState,
    SharedPosition,
)
from penstock.data.queue.makers import Makers
from penstock.data.queue.receiving import join, receive_from, start_thread
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.queue.worker_pool import WorkerPool
from penstock.data.reporting import Reporter
from penstock.data.transport import frame, handshake
from penstock.data.transport.messages import SILENCE_SECONDS
from penstock.data.transport.newcomers import Newcomers

logger = logging.getLogger(__name__)

MAX_LINKS: Final = 256
QUEUE_SECONDS: Final = 5.0
OPTIONS_SECONDS: Final = 10.0
MAX_POSITIONS: Final = 64


class Consumer:
    """See the module's docstring.

    Attributes:
        positions: how far loaders are in orders that are common to several programs, by key.
        fronts: how far the others are who are farthest: epoch and sample.
        partition: what of the steps is made elsewhere.
    """

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
        share_memory: bool = True,
        group_token: str = "",
    ) -> None:
        """``group_token``: of the job's share group, whose data workers may connect as well."""
        if not token and not is_loopback(host):
            raise DataError(
                f"host: {host}; without a token data workers are only served on loopback"
            )
        self._token, self._group_token = token, group_token
        self.lag_tiles: int | None = None
        """How far this process is behind its share group; whoever shares says."""
        self.name = f"{name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.group, self.index, self.rank = group, index, rank
        self.pool = WorkerPool()
        self.counts = self.pool.counts
        self._closing = threading.Event()
        self._began, self._cores = time.monotonic(), usable_cores()
        self._newcomers = Newcomers()
        self._refusals, self._deaf = LogLimit(), LogLimit()
        self._options = InputOptions()
        self.positions: dict[str, Callable[[], tuple[int, int] | None]] = {}
        self.fronts: dict[str, tuple[int, int]] = {}
        self.partition = PartitionNotes()
        self._told = threading.Event()  # or given up: the dispatcher has said what the options are
        self.has_heard = dispatcher is None
        """Whether the options are what the dispatcher says."""
        self.has_assumed = False
        """Whether somebody had options before it said so."""
        self._listeners = [create_listener(host, 0)]
        self.address = address_of(self._listeners[0])
        self.local = ""
        if share_memory and sys.platform == "linux":
            self.local = f"penstock-data-{secrets.token_hex(8)}"
            self._listeners.append(create_local_listener(self.local))
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
        self.pool.end()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
            listener.close()

    def forget_in_child(self) -> None:
        """In a process that was forked: its sockets are the parent's alone."""
        for listener in self._listeners:
            os.close(listener.detach())
        self.pool.forget_in_child()

    @property
    def token(self) -> str:
        """With which pipelines are signed: the share group's, where the job shares."""
        return self._shared_token or self._token

    @property
    def _shared_token(self) -> str:
        """The group's token, if the trainer says that the job is in the group."""
        return self._group_token if self._options.share is not None else ""

    @property
    def workers(self) -> list[str]:
        """The data workers that are connected."""
        return self.pool.workers

    @property
    def expects_workers(self) -> bool:
        """Whether data workers are there, or on their way, that would be sent a pipeline."""
        return self.pool.makers.workers_of_job > 0 or bool(self.workers)

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
            self.has_assumed = True
            self._told.set()
        return self._options

    # ------------------------------------------------------------------ connections

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            try:
                sock, _ = listener.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                self._deaf.log(logger, logging.ERROR, "data workers cannot connect: %s", error)
                self._closing.wait(1.0)
                continue
            self._newcomers.admit(sock)
            try:
                start_thread(self.pool.makers, self._serve, sock)
            except RuntimeError as error:  # the pod may have no more threads
                self._refuse(sock, error)

    def _serve(self, makers: Makers, sock: socket.socket) -> None:
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if sys.platform == "linux":
                    user_timeout = int(SILENCE_SECONDS * 1000)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout)
            if len(self.pool.workers) >= MAX_LINKS:
                raise HandshakeError(f"{MAX_LINKS} data workers are connected already")
            peer = handshake.answer(sock, self._token, self.name, self._shared_token)
            self._newcomers.remove(sock)
            frame.set_timeouts(sock, SILENCE_SECONDS)
        except (HandshakeError, FrameError, OSError) as error:
            self._refuse(sock, error)
            return
        link = WorkerConnection(
            sock,
            peer.name,
            makers.shared,
            seals=peer.seals,
            codings=peer.codings,
            stage=peer.stage,
            devices=peer.devices,
        )
        how = "shared memory" if link.shares_memory else "TCP"
        if peer.by_group:
            how = f"of the share group, {how}"
        logger.info("data worker %s joins (%s)", link.name, how)
        self._allow_coding(link)
        join(makers, link)
        receive_from(makers, link)

    def _allow_coding(self, *links: WorkerConnection) -> None:
        """Tell data workers how the job wants their batches coded, where they were told otherwise.

        With the lock of `Makers` held, or before they have joined.
        """
        for link in links:
            if problem := link.allow(self._options.compression):
                self.pool.makers.complaints.add(self.group, problem)

    def _refuse(self, sock: socket.socket, why: Exception) -> None:
        self._newcomers.remove(sock)
        message = "a connection to %s was refused: %s"
        self._refusals.log(logger, logging.WARNING, message, self.address, why)
        sock.close()

    # ------------------------------------------------------------------ reports

    def _report(self, reporter: Reporter) -> None:
        queue, since, before = QueueState(), self._began, (0, 0, 0, 0, 0.0)
        while True:
            closing = self._closing.is_set()
            now = time.monotonic()
            if now - since >= QUEUE_SECONDS:
                span = now - since
                counts = self.counts
                after = (
                    counts.arrived,
                    counts.taken,
                    counts.made_here,
                    counts.received_bytes,
                    counts.waited_seconds,
                )
                arrived, taken, made, received, waited = (
                    b - a for a, b in zip(before, after, strict=True)
                )
                queue = QueueState(
                    enqueued_per_second=(arrived + made) / span,
                    dequeued_per_second=(taken + made) / span,
                    received_bytes_per_second=received / span,
                    wait_share=min(1.0, max(0.0, waited / span)),
                    ready=self.pool.ready,
                    limit=self.pool.limit,
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
                workers=len(self.pool.workers),
                queue=queue,
                input=self._totals(now),
                positions=self._positions(),
                share_group=self._options.share.group if self._options.share else None,
                lag_tiles=self.lag_tiles,
                partition=self.partition.told(),
                closed=closing,
            )
            try:
                reply = reporter.report(CONSUMER_PATH, report, ConsumerReply)
                if reply is None and reporter.refused and report.partition:
                    plain = report.model_copy(update={"partition": ()})
                    reply = reporter.report(CONSUMER_PATH, plain, ConsumerReply)
                    self.partition.unheard = reply is not None
                if reply is not None:
                    self._options, self.has_heard = reply.options, True
                    self.fronts = {one.key: (one.epoch, one.sample) for one in reply.fronts}
                    self.pool.makers.workers_of_job = reply.workers
                    # Before the program goes on, and forks who reads its files; memory for a cache
                    # of their own is given to data workers alone.
                    job_cache.use(reply.options.cache, has_memory=False)
                    self._told.set()
                    with self.pool.makers.lock:
                        self._allow_coding(*self.pool.makers.links.values())
            except ProtocolError as error:
                logger.warning("the dispatcher at %s: %s", reporter.address, error)
            if closing:
                reporter.close()
                return
            self.pool.sweep()
            self._closing.wait(REPORT_SECONDS)

    def _positions(self) -> tuple[SharedPosition, ...]:
        found = []
        for key, position in list(self.positions.items())[-MAX_POSITIONS:]:
            if (where := position()) is not None:
                found.append(SharedPosition(key=key, epoch=where[0], sample=where[1]))
        return tuple(found)

    def _totals(self, now: float) -> InputTotals:
        counts = self.counts
        return InputTotals(
            seconds=now - self._began,
            taken=counts.taken + counts.made_here,
            waited_seconds=counts.waited_seconds,
            cpu_seconds=time.process_time(),
            received_bytes=counts.received_bytes,
            batch_bytes=counts.batch_bytes,
            cores=self._cores,
            local_workers=self.pool.local_workers,
            in_line=_totals_of(counts.in_line),
            local=_totals_of(counts.local),
            remote=_totals_of(counts.remote),
            cut=counts.cut[:MOST_CUT],
        )


def _totals_of(making: Making) -> MakingTotals:
    return MakingTotals(**asdict(making))
