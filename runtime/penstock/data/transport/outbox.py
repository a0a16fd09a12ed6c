"""What goes out on one connection of many: who does not take it holds up nobody else.

A process that serves several others from one thread must not wait for one of them: it may be
stopped for an hour, or be behind a slow network. So a message is sent at once, from where it lies,
as long as the other end takes it; when it does not, what is left is copied and sent by a thread of
its own. Whoever would make more for that end looks first whether it is `behind`.

Invariants: messages arrive whole and in the order in which they were sent; a call waits for at most
`LONGEST_SECONDS`, of which `PATIENCE_SECONDS` without progress; of large messages no more than
`MOST_WAITING`, and one that was begun, are kept by who looks at `behind`; an end that takes nothing
within the time-out of its socket is lost: the connection is shut down, which its reader notices.
"""

from __future__ import annotations

import array
import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from penstock.data.errors import FrameError
from penstock.data.transport import frame
from penstock.data.transport.seal import Seal

PATIENCE_SECONDS: Final = 0.02
LONGEST_SECONDS: Final = 0.25
MOST_WAITING: Final = 2
MOST_MESSAGES: Final = 10_000
"""Small ones, for an end that takes none."""

Pieces = Iterator[tuple[list[Any], int]]


class Outbox:
    """See the module's docstring; any thread may send."""

    def __init__(self, sock: socket.socket, seal: Seal | None = None, *, alone: bool = False):
        """``sock``: blocking, with a time-out of its own (`frame.set_timeouts`).

        ``seal``: of what is sent. ``alone``: there is nobody else who could be held up.
        """
        self._sock = sock
        self._seal = seal
        self._alone = alone
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._error: OSError | None = None
        self._writable: select.poll | None = None
        self.on_room: Callable[[], None] = _nothing
        self.sent_at = time.monotonic()

    @property
    def behind(self) -> bool:
        """Whether the other end has not taken what it was sent before."""
        return len(self._waiting) >= MOST_WAITING

    @property
    def silent_seconds(self) -> float:
        """For how long nothing was sent; 0.0 while something waits to be."""
        return 0.0 if self._waiting else time.monotonic() - self.sent_at

    def send(
        self, kind: int, header: Any, body: Sequence[Any] = (), size: int | None = None
    ) -> None:
        """Send one message (`frame.send`).

        Raises:
            TooLargeError: it is beyond the limit; nothing was sent.
            FrameError: the other end went away, or does not take what it is sent.
        """
        with self._changed:
            self._check()
            pieces = frame.outgoing(kind, header, body, size, self._seal)
            try:
                rest = self._send_now(pieces)
            except OSError as error:
                raise frame.lost_while_sending(error) from error
            self.sent_at = time.monotonic()
            if rest:
                self._keep(b"".join(rest))

    def send_descriptor(self, kind: int, header: Any, descriptor: int) -> bool:
        """Send a message with an open file, over a Unix socket; False: it cannot be sent now.

        Raises:
            FrameError: the other end went away.
        """
        rights = array.array("i", [descriptor]).tobytes()
        flags = 0 if self._alone else socket.MSG_DONTWAIT
        with self._changed:
            self._check()
            if self._waiting:
                return False
            (((head, *_), size),) = frame.outgoing(kind, header)
            try:
                sent = self._sock.sendmsg(
                    [head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], flags
                )
            except BlockingIOError:
                return False
            except OSError as error:
                raise frame.lost_while_sending(error) from error
            self.sent_at = time.monotonic()
            if sent < size:
                self._keep(head[sent:])
            return True

    def finish(self, deadline: float) -> None:
        """Wait until everything is sent, or that time of the monotonic clock."""
        with self._changed:
            left = max(0.0, deadline - time.monotonic())
            self._changed.wait_for(lambda: not self._waiting, left)

    def close(self) -> None:
        """Nothing more is to be sent; the thread that sends ends."""
        with self._changed:
            self._fail(ConnectionAbortedError("it was closed here"))

    # ------------------------------------------------------------------ inside

    def _check(self) -> None:
        if self._error is not None:
            raise frame.lost_while_sending(self._error)
        if len(self._waiting) >= MOST_MESSAGES:
            raise FrameError(f"the other end has not taken {MOST_MESSAGES} messages")

    def _send_now(self, pieces: Pieces) -> list[Any]:
        """Send what the other end takes; what is left, to be copied before anything else is done.

        Raises:
            OSError: it went away, or takes nothing.
        """
        if self._waiting:
            return [part for parts, _ in pieces for part in _copied(parts)]
        until = time.monotonic() + LONGEST_SECONDS
        for parts, size in pieces:
            if self._alone:
                frame.send_all(self._sock, parts, size)
            elif left := self._send_parts(parts, size, until):
                return [*_copied(left), *(part for more, _ in pieces for part in _copied(more))]
        return []

    def _send_parts(self, parts: list[Any], size: int, until: float) -> list[Any]:
        left, sent = parts, 0
        while True:
            try:
                count = self._sock.sendmsg(left[: frame.IOV_MAX], (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                if not self._wait(until):
                    return left
                continue
            sent += count
            if sent == size:
                return []
            left = frame.after([memoryview(part).cast("B") for part in left], count)

    def _wait(self, until: float) -> bool:
        """Whether the other end takes something soon."""
        if self._writable is None:
            self._writable = select.poll()
            self._writable.register(self._sock, select.POLLOUT)
        seconds = min(PATIENCE_SECONDS, until - time.monotonic())
        return seconds > 0 and bool(self._writable.poll(seconds * 1000))

    def _keep(self, rest: bytes) -> None:
        self._waiting.append(rest)
        if len(self._waiting) == 1:
            threading.Thread(target=self._drain, name="penstock-outbox", daemon=True).start()

    def _drain(self) -> None:
        """Send what waits; the socket's own time-out bounds each wait for progress."""
        while self._waiting:
            try:
                self._sock.sendall(self._waiting[0])
            except OSError as error:
                with self._changed:
                    self._fail(error)
            else:
                with self._changed:
                    if self._waiting:  # it may be closed by now
                        self._waiting.popleft()
                    self._changed.notify_all()
            self.on_room()

    def _fail(self, error: OSError) -> None:
        self._error = self._error or error
        self._waiting.clear()
        self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def _copied(parts: Sequence[Any]) -> list[bytes]:
    """Parts that stay as they are when their memory is used again."""
    return [part if type(part) is bytes else bytes(part) for part in parts]


def _nothing() -> None:
    """Nobody waits for room."""
