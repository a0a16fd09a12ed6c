"""What a data worker tells the dispatchers of a share group, and whom they say it is to serve.

The group has one name, behind which the trainers of all its members are; which these are is looked
up anew each time, since members come and go. Each has a thread and a connection of its own, so that
one that does not answer holds up neither the others nor the data worker's own job: nobody waits for
any of them. What a member said counts until it has been silent for `FORGET_SECONDS`.

All of it is proven with the group's token, which opens this one call of a trainer and no other.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.data.complaints import Complaints
from penstock.data.dispatcher import FORGET_SECONDS
from penstock.data.protocol import (
    REPORT_SECONDS,
    WORKER_PATH,
    ConsumerEntry,
    ProtocolError,
    WorkerReply,
    WorkerReport,
)
from penstock.data.reporting import Reporter

logger = logging.getLogger(__name__)

MAX_MEMBERS: Final = 64
"""Dispatchers that one data worker reports to."""
MAX_CONSUMERS: Final = 1024
TIMEOUT_SECONDS: Final = 2.0
GOODBYE_SECONDS: Final = 1.0
"""How long a data worker that leaves waits until all members know."""


def resolve(host: str, port: int) -> set[str]:
    """HOST:PORT of all that a name stands for now.

    Raises:
        OSError: it stands for nothing, or nobody can say.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = {address[0] for *_, address in found}
    return {f"[{one}]:{port}" if ":" in str(one) else f"{one}:{port}" for one in addresses}


@dataclass(eq=False, slots=True)
class _Member:
    """One dispatcher behind the group's name."""

    reporter: Reporter
    consumers: tuple[ConsumerEntry, ...] = ()
    heard_at: float = float("-inf")
    wanted: bool = True
    due: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class GroupReports:
    """Reports to a share group.

    Args:
        host: the group's name.
        port: of its dispatchers.
        token: the group's.
        look_up: what the name stands for; may take its time.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str,
        look_up: Callable[[str, int], set[str]] = resolve,
    ) -> None:
        self.token = token
        self._host, self._port, self._look_up = host, port, look_up
        self._lock = threading.Lock()
        self._members: dict[str, _Member] = {}
        self._looking = False
        self._report: WorkerReport | None = None
        self._complaints = Complaints()

    def report(self, report: WorkerReport) -> tuple[ConsumerEntry, ...]:
        """Have all members told, and say whom they want to be served; waits for nobody."""
        if self._is_leaving():
            return ()
        self._report = report
        with self._lock:
            members = list(self._members.values())
            begin, self._looking = not self._looking, True
        if begin:
            threading.Thread(target=self._look, name="penstock-group", daemon=True).start()
        found: dict[str, ConsumerEntry] = {}
        oldest = time.monotonic() - FORGET_SECONDS
        for member in members:
            member.due.set()
            if member.heard_at >= oldest:
                found.update((entry.name, entry) for entry in member.consumers)
        return tuple(found.values())[:MAX_CONSUMERS]

    def leave(self, report: WorkerReport) -> None:
        """Tell all members that this data worker leaves; who does not answer finds out alone."""
        self._report = report
        with self._lock:
            members = list(self._members.values())
            self._looking = True  # nobody is looked for any more
        for member in members:
            member.wanted = False
            member.due.set()
        deadline = time.monotonic() + GOODBYE_SECONDS
        for member in members:
            if member.thread is not None:
                member.thread.join(max(0.0, deadline - time.monotonic()))

    def _look(self) -> None:
        """Find who is behind the name now, in a thread of its own: a resolver may take long."""
        try:
            found = self._look_up(self._host, self._port)
        except OSError as error:  # those who are known stay: their names may be back soon
            self._complaints.add(f"the share group {self._host}:", str(error), logging.WARNING)
            found = None
        with self._lock:
            if found is not None and not self._is_leaving():
                self._replace(found)
            self._looking = self._is_leaving()

    def _is_leaving(self) -> bool:
        return self._report is not None and self._report.leaving

    def _replace(self, addresses: set[str]) -> None:
        if len(addresses) > MAX_MEMBERS:
            text = f"{len(addresses)} members; data workers of this job serve {MAX_MEMBERS} of them"
            self._complaints.add(f"the share group {self._host}:", text, logging.WARNING)
        for address in self._members.keys() - addresses:
            member = self._members.pop(address)
            member.wanted = False
            member.due.set()
        for address in sorted(addresses - self._members.keys()):
            if len(self._members) >= MAX_MEMBERS:
                return
            reporter = Reporter(
                address, self.token, who="group's dispatcher", timeout_seconds=TIMEOUT_SECONDS
            )
            member = self._members[address] = _Member(reporter)
            member.thread = threading.Thread(
                target=self._tell, args=(member,), name="penstock-group", daemon=True
            )
            member.thread.start()

    def _tell(self, member: _Member) -> None:
        """Report to one member whenever there is something new, until it is one no more."""
        while True:
            last = not member.wanted
            report = self._report
            if report is not None and (not last or report.leaving):
                try:
                    reply = member.reporter.report(WORKER_PATH, report, WorkerReply)
                except ProtocolError as error:
                    logger.warning(
                        "the group's dispatcher at %s: %s", member.reporter.address, error
                    )
                    reply = None
                if reply is not None:
                    member.consumers, member.heard_at = reply.consumers, time.monotonic()
            if last:
                member.reporter.close()
                return
            member.due.wait(REPORT_SECONDS * 2)
            member.due.clear()
