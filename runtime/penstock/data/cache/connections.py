"""A program's connections to the daemon of its node, kept for the next question.

Any thread may use them, and children that are forked once they have called `begin`.
"""

from __future__ import annotations

import socket
import threading
from typing import Final

from penstock.data.transport import frame

KEPT_CONNECTIONS: Final = 8


class Connections:
    """To one place."""

    def __init__(self, place: str, answer_seconds: float) -> None:
        """``place``: a path, or ``@NAME``; ``answer_seconds``: for how long it may be silent."""
        self._place = place
        self._answer_seconds = answer_seconds
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()

    def __del__(self) -> None:
        for sock in self._idle:
            sock.close()

    def begin(self) -> None:
        """In a fork: the parent's are not its own."""
        self._lock = threading.Lock()
        self.close()

    def close(self) -> None:
        """Close those that nobody uses now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for sock in idle:
            sock.close()

    def take(self) -> socket.socket:
        """One that is there, or a new one.

        Raises:
            OSError: there is nobody at that place.
        """
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self.connect()

    def connect(self) -> socket.socket:
        """A new one.

        Raises:
            OSError: there is nobody at that place.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self._answer_seconds)
            sock.connect(address(self._place))
            frame.set_timeouts(sock, self._answer_seconds)
        except BaseException:
            sock.close()
            raise
        return sock

    def give_back(self, sock: socket.socket) -> None:
        """It may be asked the next question."""
        with self._lock:
            if len(self._idle) < KEPT_CONNECTIONS:
                self._idle.append(sock)
                return
        sock.close()


def address(place: str) -> str:
    """The address of a Unix socket: ``@NAME`` is one without a file."""
    return f"\0{place[1:]}" if place.startswith("@") else place
