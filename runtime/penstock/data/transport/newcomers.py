"""Connections that have not proved anything yet: few at a time, and none of them keeps others out.

Each costs its listener a thread and a descriptor, and whoever reaches the port can make as many as
they like. So there are at most so many; while there are, nobody else is accepted, until the oldest
has had a moment for its handshake, which takes milliseconds. Then it is ended for the next one.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Final

MOST: Final = 32
MOMENT_SECONDS: Final = 0.25
"""What a newcomer has at least, however many others wait."""


class Newcomers:
    """Those of one process, whichever of its listeners they came to. Any thread may use it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._since: dict[socket.socket, float] = {}
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._since)

    def admit(self, sock: socket.socket) -> None:
        """Take in a connection; waits until there is room, and makes it in the end."""
        with self._changed:
            while len(self._since) >= self._most:
                oldest, since = next(iter(self._since.items()))
                left = since + MOMENT_SECONDS - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                del self._since[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
            self._since[sock] = time.monotonic()

    def remove(self, sock: socket.socket) -> None:
        """It has proved who it is, or is about to be closed."""
        with self._changed:
            if self._since.pop(sock, None) is not None:
                self._changed.notify_all()
