"""How fast the link of a TCP connection is, by the kernel's own account of it.

What a program sees of its sending says little: a socket takes megabytes at once. The kernel counts
how long data was under way, and how much of it has arrived (``TCP_INFO``, Linux 4.9).
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Final, NamedTuple

_BYTES_ACKED: Final = struct.Struct("<120xQ")
_BUSY_TIME: Final = struct.Struct("<168xQ")


class LinkUse(NamedTuple):
    """Since the connection was made: seconds with data under way, and bytes that have arrived."""

    busy_seconds: float
    bytes_arrived: int


def link_use(sock: socket.socket) -> LinkUse | None:
    """Of what this end has sent; None where the system does not say."""
    if sys.platform != "linux" or sock.family == socket.AF_UNIX:
        return None
    try:
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return None
    if len(told) < _BUSY_TIME.size:
        return None
    (arrived,), (busy,) = _BYTES_ACKED.unpack_from(told), _BUSY_TIME.unpack_from(told)
    return LinkUse(busy / 1e6, arrived)
