"""One data connection to a parameter server, as its caller sees it: requests out, answers in.

Used by workers, by the chief and by servers that take over partitions. A caller that wants answers
of several servers sends to all and then receives from all. After an `UnavailableError` the
connection is as good as before; after a FrameError it is closed, and the caller makes another.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np

from penstock.base.listener import split_address
from penstock.data.errors import FrameError
from penstock.data.transport import frame, handshake
from penstock.data.transport.seal import Seals
from penstock.parameter_server.wire import TIMEOUT_SECONDS, UNAVAILABLE, Unavailable

CONNECT_SECONDS: Final = 5.0


class UnavailableError(Exception):
    """The server does not answer the request, and says why."""

    def __init__(self, reason: Unavailable, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class Connection:
    """See the module's docstring; for one thread at a time."""

    def __init__(self, sock: socket.socket, address: str, seals: Seals | None = None) -> None:
        """``sock``: connected; its handshake, which is over, gave ``seals``. See `connect`."""
        self.address = address
        self.bytes_out = 0
        self.bytes_in = 0
        self._sock = sock
        self._reader = frame.Reader(sock, seals.receiving if seals else None)
        self._seal = seals.sending if seals else None

    @classmethod
    def connect(cls, address: str, token: str, name: str, timeout: float = TIMEOUT_SECONDS) -> Self:
        """Call the server at HOST:PORT; ``name`` says there who calls.

        Raises:
            FrameError: nobody answers there.
            HandshakeError: the two ends do not belong together.
        """
        sock = None
        try:
            sock = socket.create_connection(split_address(address), CONNECT_SECONDS)
            tuned(sock)
            peer = handshake.call(sock, token, name)
            frame.set_timeouts(sock, timeout)
        except (OSError, ValueError, FrameError) as error:
            if sock is not None:
                sock.close()
            raise FrameError(f"the parameter server at {address}: {error}") from error
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        return cls(sock, address, peer.seals)

    def ask(self, kind: int, header: Any, body: Sequence[Any] = ()) -> frame.Frame:
        """Ask one request and wait for its answer; raises as `send` and `receive` do."""
        self.send(kind, header, body)
        return self.receive()

    def send(self, kind: int, header: Any, body: Sequence[Any] = ()) -> None:
        """Send a request; its answer has to be received before the next.

        Raises:
            FrameError: the server is gone, or takes nothing; the connection is closed.
            TooLargeError: the request is too long; nothing was sent.
        """
        try:
            self.bytes_out += frame.send(self._sock, kind, header, body, seal=self._seal)
        except FrameError as error:
            raise self._broken(str(error)) from error

    def receive(self) -> frame.Frame:
        """The answer to the request that was sent.

        Raises:
            AwayError: the server does not answer it, and says why.
            FrameError: the server is gone, stalls or makes no sense; the connection is closed.
        """
        try:
            answer = self._reader.receive(_allocate)
        except FrameError as error:
            raise self._broken(str(error)) from error
        except TimeoutError as error:
            raise self._broken("no answer in time") from error
        self.bytes_in += len(answer.body)
        if answer.kind != UNAVAILABLE:
            return answer
        try:
            reason, text = answer.header
            away = UnavailableError(Unavailable(reason), str(text))
        except (ValueError, TypeError) as error:
            raise self._broken(f"an answer that says {str(answer.header)[:100]}") from error
        raise away

    def close(self) -> None:
        """End the connection."""
        self._sock.close()

    def _broken(self, why: str) -> FrameError:
        self.close()
        return FrameError(f"the parameter server at {self.address}: {why}")


def tuned(sock: socket.socket) -> None:
    """Small messages go at once, and a machine that vanished is noticed in time, idle or not."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        seconds = int(TIMEOUT_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2 * seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds // 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * seconds)


def _allocate(size: int) -> memoryview:
    return np.empty(size, np.uint8).data  # not zeroed, as a bytearray would be
