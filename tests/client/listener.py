"""Somebody who listens where one of our programs might go by mistake."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Listener:
    """Notes who comes, and says nothing to them."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.callers = 0
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.callers += 1
            connection.close()

    def close(self) -> None:
        """Listen no longer."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@contextlib.contextmanager
def listening() -> Iterator[Listener]:
    """A listener on a free port of this machine."""
    found = Listener()
    try:
        yield found
    finally:
        found.close()
