"""Which connections a server keeps: all that it serves, and of the others the newest.

Whoever connects costs a descriptor and some memory before a token is read. There are at most
`most` connections: beyond that the one goes that has been waiting longest, first of those that have
never sent a whole request. A newcomer therefore always gets in, unless all others are being
served. And none waits for ever: not before its request's head, within its body, nor between two
requests; nor does one stay that does not take its answer.

A connection is *busy* from the end of a request's head to the end of its answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, Generic, Protocol, TypeVar

HEAD_SECONDS: Final = 10.0
BODY_SECONDS: Final = 60.0
STALL_SECONDS: Final = 60.0


class Served(Hashable, Protocol):
    """One connection, as far as it is asked."""

    def lacks_body(self) -> bool:
        """Whether the request's body is not complete."""

    def is_stalled(self) -> bool:
        """Whether the other end does not take what it is sent."""


C = TypeVar("C", bound=Served)


class ConnectionTable(Generic[C]):
    """The connections of one server."""

    def __init__(self, most: int, keep_alive_seconds: float) -> None:
        self._most = most
        self._idle_seconds = keep_alive_seconds + HEAD_SECONDS
        self._new: OrderedDict[C, float] = OrderedDict()
        self._idle: OrderedDict[C, float] = OrderedDict()
        self._busy: dict[C, float] = {}
        self._stalled: dict[C, float] = {}

    def __len__(self) -> int:
        return len(self._new) + len(self._idle) + len(self._busy)

    def admit(self, connection: C, now: float) -> C | None:
        """Take in a connection; which one has to go for it, maybe itself."""
        self._new[connection] = now
        if len(self) <= self._most:
            return None
        for waiting in (self._new, self._idle):
            for oldest in waiting:
                if oldest is not connection:
                    del waiting[oldest]
                    return oldest
        del self._new[connection]
        return connection

    def note_busy(self, connection: C, now: float) -> None:
        """The head of a request is complete."""
        if connection in self._busy:
            return
        known = self._idle.pop(connection, None)
        if known is None and self._new.pop(connection, None) is None:
            return  # it has had to go meanwhile
        self._busy[connection] = now

    def note_idle(self, connection: C, now: float) -> None:
        """Its answer has been sent, and no other request is here."""
        if self._busy.pop(connection, None) is not None:
            self._idle[connection] = now

    def remove(self, connection: C) -> None:
        """It is closed."""
        self._forget(connection)

    def overdue(self, now: float) -> list[C]:
        """Those whose time is over; they are forgotten."""
        gone = [
            *_older(self._new, now - HEAD_SECONDS),
            *_older(self._idle, now - self._idle_seconds),
        ]
        self._stalled = {
            connection: self._stalled.get(connection, now)
            for connection in self._busy
            if connection.is_stalled()
        }
        for connection, since in self._busy.items():
            lacks = now - since > BODY_SECONDS and connection.lacks_body()
            if lacks or now - self._stalled.get(connection, now) > STALL_SECONDS:
                gone.append(connection)
        for connection in gone:
            self._forget(connection)
        return gone

    def _forget(self, connection: C) -> None:
        for each in (self._new, self._idle, self._busy, self._stalled):
            each.pop(connection, None)


def _older(waiting: OrderedDict[C, float], than: float) -> Iterator[C]:
    for connection, since in waiting.items():
        if since > than:
            return
        yield connection
