"""How fast bytes go to another pod of the job and back.

Both ends prove that they hold the job's token (`penstock.data.transport.handshake`) before a byte
of it is taken; then zeros go there and come back, message by message, over a plain socket: a client
and a server of HTTP would be measured instead of a fast network. A message goes when the one before
it is back, so that a link on which all comes late is as slow as one of little bandwidth; of such a
one a single message is enough.

The serving end takes `MOST_CALLERS` at once, each for `CALLER_SECONDS` and `MOST_BYTES` at most.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.base.listener import address_of, create_listener
from penstock.data.errors import FrameError, HandshakeError
from penstock.data.transport import handshake

MESSAGE_BYTES: Final = 1 << 20
MOST_MESSAGES: Final = 256
MEASURED_SECONDS: Final = 0.2
LINK_SECONDS: Final = 1.0
"""What does not come across within this time has failed."""
CALLER_SECONDS: Final = 3.0
MOST_BYTES: Final = MOST_MESSAGES * MESSAGE_BYTES
MOST_CALLERS: Final = 4
_NAME: Final = "nodecheck"


@contextmanager
def serving(host: str, token: str) -> Iterator[str]:
    """Send back what holders of the token send, until the end of the block; HOST:PORT of it.

    Raises:
        OSError: nothing can listen there.
    """
    listening = create_listener(host, 0)
    listening.setblocking(True)
    listening.settimeout(0.2)  # so that it is seen that the block has ended
    ended = threading.Event()
    thread = threading.Thread(
        target=_accept, args=(listening, token, ended), name="nodecheck", daemon=True
    )
    thread.start()
    try:
        yield address_of(listening)
    finally:
        ended.set()
        thread.join(1.0)
        listening.close()


def measure_link(
    address: str,
    token: str,
    link_seconds: float = LINK_SECONDS,
    measured_seconds: float = MEASURED_SECONDS,
) -> float | None:
    """Bytes per second to a pod and back; None: not all of them came across in time.

    Args:
        address: HOST:PORT of the other end.
        token: the job's.
        link_seconds: what does not come across within this time has failed.
        measured_seconds: after so long no further message is sent.
    """
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + link_seconds
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=link_seconds) as sock:
            handshake.call(sock, token, _NAME, seconds=max(0.05, deadline - time.monotonic()))
            return _exchange(sock, deadline, measured_seconds)
    except (OSError, ValueError, FrameError, HandshakeError):
        return None


def _exchange(sock: socket.socket, deadline: float, measured_seconds: float) -> float:
    """Raises OSError where it is not over in time, or the other end leaves."""
    payload, back = bytes(MESSAGE_BYTES), bytearray(MESSAGE_BYTES)
    began = time.perf_counter()
    messages = 0
    while messages < MOST_MESSAGES:
        _set_timeout(sock, deadline)
        sock.sendall(payload)
        _receive(sock, memoryview(back), deadline)
        messages += 1
        if time.perf_counter() - began >= measured_seconds:
            break
    return 2 * messages * MESSAGE_BYTES / max(time.perf_counter() - began, 1e-9)


def _receive(sock: socket.socket, into: memoryview, deadline: float) -> None:
    while into:
        _set_timeout(sock, deadline)
        count = sock.recv_into(into)
        if not count:
            raise ConnectionError("the other end has left")
        into = into[count:]


def _set_timeout(sock: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("not across in time")
    sock.settimeout(left)


def _accept(listening: socket.socket, token: str, ended: threading.Event) -> None:
    room = threading.BoundedSemaphore(MOST_CALLERS)
    while not ended.is_set():
        try:
            sock, _ = listening.accept()
        except TimeoutError:
            continue
        except OSError:
            return
        if not room.acquire(blocking=False):
            sock.close()
            continue
        threading.Thread(target=_serve, args=(sock, token, room), daemon=True).start()


def _serve(sock: socket.socket, token: str, room: threading.BoundedSemaphore) -> None:
    deadline = time.monotonic() + CALLER_SECONDS
    with sock, contextlib.suppress(OSError, FrameError, HandshakeError):
        try:
            handshake.answer(sock, token, _NAME)
            buffer = bytearray(MESSAGE_BYTES)
            for _ in range(MOST_MESSAGES):
                _receive(sock, memoryview(buffer), deadline)
                _set_timeout(sock, deadline)
                sock.sendall(buffer)
        finally:
            room.release()
