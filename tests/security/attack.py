"""What somebody without a token can do to a listener: connect, and not say what is expected."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from penstock.base.listener import split_address

MIB = 1 << 20


def connected(address: str) -> socket.socket:
    """A connection; ``address`` may be the name, or the path, of a socket of this machine."""
    if ":" not in address:
        local = socket.socket(socket.AF_UNIX)
        local.connect(address if address.startswith("/") else f"\0{address}")
        local.settimeout(10)
        return local
    return socket.create_connection(split_address(address), 10)


@contextmanager
def silence(address: str, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections that say nothing, or no more than this."""
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            sock = stack.enter_context(connected(address))
            with contextlib.suppress(OSError):  # refused at once
                sock.sendall(said)
            held.append(sock)
        yield held


def flood(
    address: str, beginning: bytes, piece: bytes, mib: int, context: ssl.SSLContext | None = None
) -> int:
    """Send so much, as long as it is taken; the bytes that were."""
    sent = 0
    piece = piece * (MIB // len(piece))
    with ExitStack() as stack:
        sock = stack.enter_context(connected(address))
        stack.enter_context(contextlib.suppress(OSError))
        if context is not None:
            sock = stack.enter_context(context.wrap_socket(sock))
        sock.sendall(beginning)
        for _ in range(mib):
            sock.sendall(piece)
            sent += len(piece)
    return sent


def churn(address: str, count: int, said: bytes) -> None:
    """Connect again and again, and say this each time."""
    for _ in range(count):
        with connected(address) as sock, contextlib.suppress(OSError):
            sock.sendall(said)
