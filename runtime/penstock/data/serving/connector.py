"""Finds the training processes that a data worker is to serve, and connects to them.

Its thread reports to the job's dispatcher, and to those of the share group, which answer whom they
want to be served. The job's own answers when that changes, or after a second: a training process
that comes is served at once. Each connection is made in a thread of its own, so that a training
process that does not answer holds up no others; one that failed is tried again after a pause. What
is connected is the data worker's from then on, but for a sign of life where it has been silent for
long.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Final, Protocol

from penstock.base.listener import split_address
from penstock.data.cache import job_cache
from penstock.data.complaints import Complaints
from penstock.data.errors import DataError, HandshakeError
from penstock.data.protocol import (
    REPORT_SECONDS,
    WORKER_PATH,
    ConsumerEntry,
    ProtocolError,
    WorkerReply,
    WorkerReport,
    consumers_digest,
)
from penstock.data.reporting import Reporter
from penstock.data.serving.consumer_connection import ConsumerConnection
from penstock.data.serving.figures import Figures
from penstock.data.serving.group_reports import GroupReports
from penstock.data.stage_devices import CPU, own_devices
from penstock.data.transport import frame, handshake, messages
from penstock.data.transport.codings import offered
from penstock.data.transport.messages import ALIVE_SECONDS, SILENCE_SECONDS

logger = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 5.0
NEWS_SECONDS: Final = 0.1
"""Between reports where others are to be served than the last time."""
RETRY_SECONDS: Final = 1.0
REFUSED_RETRY_SECONDS: Final = 30.0


class Server(Protocol):
    """Who serves what is connected."""

    leaving: bool

    def serve(self, line: ConsumerConnection) -> bool:
        """Answer what comes over a connection; False when it is too late for that."""

    def serving(self) -> dict[str, ConsumerConnection]:
        """All that are served now, by name."""

    def reply(self, line: ConsumerConnection, kind: int, header: Any) -> None:
        """Send a message; a connection that is lost is ended."""


class Connector:
    """See the module's docstring."""

    def __init__(
        self,
        server: Server,
        figures: Figures,
        token: str,
        *,
        dispatcher: str | None,
        consumers: tuple[ConsumerEntry, ...],
        group: GroupReports | None,
        share_memory: bool,
    ) -> None:
        """``consumers``: whom to serve where there is no dispatcher to say."""
        self._server = server
        self._figures = figures
        self._token = token
        self._dispatcher = dispatcher
        self._reporter = Reporter(dispatcher, token) if dispatcher else None
        self._known = ""  # whom the job's dispatcher wants to be served, as a digest
        self._consumers = consumers
        self._group = group
        self._share_memory = share_memory
        self._of_others: frozenset[str] = frozenset()  # consumers that only the group told of
        self._connecting: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._complaints = Complaints()
        self.answered_at = time.monotonic()
        """When the job's dispatcher answered last, or this was made."""

    def run(self) -> None:
        """Report, connect to whom there is to serve, and show that this process is alive."""
        while not self._server.leaving:
            began, known = time.monotonic(), self._known
            entries = self._consumers if self._reporter is None else self._report(leaving=False)
            self._connect_to(entries)
            for name in self._not_before.keys() - {entry.name for entry in entries}:
                self._not_before.pop(name, None)
            for line in self._server.serving().values():
                if line.outbox.silent_seconds > ALIVE_SECONDS:
                    self._server.reply(line, messages.ALIVE, [])
            pause = began + REPORT_SECONDS - time.monotonic()
            time.sleep(max(0.0, pause if self._known == known else min(pause, NEWS_SECONDS)))

    def pause(self, name: str) -> None:
        """Somebody's connection has ended: it is tried again, but not at once."""
        self._not_before[name] = time.monotonic() + RETRY_SECONDS

    def say_goodbye(self) -> None:
        """Report that the data worker leaves, if there is anybody who wants to know."""
        if self._reporter is not None:
            self._report(leaving=True)  # by a connection of its own: the other's call may be held

    def _connect_to(self, entries: Iterable[ConsumerEntry]) -> None:
        # In this order: who is no more being connected to is served by then, or has failed.
        busy = self._connecting.copy()
        busy |= self._server.serving().keys()
        for entry in entries:
            if entry.name in busy or self._server.leaving:
                continue
            if time.monotonic() < self._not_before.get(entry.name, 0.0):
                continue
            # Apart: one that does not answer must not hold up others.
            busy.add(entry.name)
            self._connecting.add(entry.name)
            threading.Thread(
                target=self._connect, args=(entry,), name="penstock-connect", daemon=True
            ).start()

    def _report(self, *, leaving: bool) -> tuple[ConsumerEntry, ...]:
        """Tell the job's dispatcher, and the share group's; whom they want to be served."""
        report = self._figures.report(leaving=leaving)
        if self._group is None:
            return self._tell(report)
        if leaving:
            self._group.leave(report)
            return self._tell(report)
        group = self._group.report(report)  # first: it waits for nobody
        own = self._tell(report)
        known = {entry.name for entry in own}
        others = [entry for entry in group if entry.name not in known]
        self._of_others = frozenset(entry.name for entry in others)
        return (*own, *others)

    def _tell(self, report: WorkerReport) -> tuple[ConsumerEntry, ...]:
        assert self._reporter is not None
        assert self._dispatcher is not None
        reporter, path = self._reporter, WORKER_PATH
        if report.leaving:
            reporter = Reporter(self._dispatcher, self._token)
        elif self._known and self._group is None:  # members of a group are not to wait for its news
            path = f"{WORKER_PATH}?known={self._known}"
        try:
            reply = reporter.report(path, report, WorkerReply)
        except ProtocolError as error:
            logger.warning("the dispatcher at %s: %s", reporter.address, error)
            return ()
        finally:
            if report.leaving:
                reporter.close()
        if reply is None:
            return ()
        self._known = consumers_digest(reply.consumers)
        self.answered_at = time.monotonic()
        job_cache.use(reply.cache)
        return reply.consumers

    def _connect(self, entry: ConsumerEntry) -> None:
        try:
            self._join(entry)
        finally:
            self._connecting.discard(entry.name)

    def _join(self, entry: ConsumerEntry) -> None:
        sock = None
        group = self._group if entry.name in self._of_others else None
        token = self._token if group is None else group.token
        by_group = group is not None
        try:
            sock, same_host = self._socket(entry)
            codings = () if same_host else offered()
            name = self._figures.name
            peer = handshake.call(
                sock,
                token,
                name,
                same_host=same_host,
                by_group=by_group,
                codings=codings,
                stage=self._figures.stage,
                devices=own_devices() if self._figures.stage else (CPU,),
            )
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
        line = ConsumerConnection(entry.name, sock, same_host, seals=peer.seals, by_group=by_group)
        if self._server.serve(line):
            logger.info("serving %s at %s (%s)", entry.name, entry.address, how)

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
