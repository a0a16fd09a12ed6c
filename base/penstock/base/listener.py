"""Where every listening socket is made, and every address of one is written and read.

A host may be a name, an IPv4 or an IPv6 address, the latter with or without brackets; ``::`` takes
connections of both families. A test finds listeners that are made anywhere else.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Final

BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 32
"""Given to asyncio as a backlog: it accepts so many in one turn of its loop before it looks at one.
The queue itself is to be set to `BACKLOG` again, by `socket.listen`."""


def create_listener(host: str, port: int, *, backlog: int = BACKLOG) -> socket.socket:
    """A listening TCP socket; port 0 is any free one. What it accepts sends without delay.

    Raises:
        socket.gaierror: the host cannot be resolved.
        OSError: nobody can listen there, for instance because the port is in use.
    """
    bare = unbracketed(host)
    found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name that has addresses of both families is one that some call by IPv4 alone.
    family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bare != "::"))
        # Connections inherit it: else the end of a message waits for the acknowledgement of its
        # beginning, for 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def create_local_listener(name: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A Unix socket with an abstract name, for processes of this machine; streams listen at once.

    Raises:
        OSError: somebody has that name.
    """
    listener = socket.socket(socket.AF_UNIX, kind)
    try:
        listener.bind(f"\0{name}")
        if kind == socket.SOCK_STREAM:
            listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def create_file_listener(path: str) -> socket.socket:
    """A Unix socket with a file, which any user may connect to; what was left there is replaced.

    Who calls makes sure that nobody else listens there.

    Raises:
        OSError: the file cannot be made.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        Path(path).unlink(missing_ok=True)
        listener.bind(path)
        Path(path).chmod(0o666)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def reserve_port(host: str) -> socket.socket:
    """A socket with a port that the system gives to nobody else while it is open.

    It does not listen: a program that is told the port, and sets SO_REUSEADDR as servers do, can
    listen there meanwhile.

    Args:
        host: as others are to call it; only its family counts, the port is free on all addresses.

    Raises:
        OSError: no port is free.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("", 0))
    except BaseException:
        reserved.close()
        raise
    return reserved


def address_of(listener: socket.socket, host: str | None = None) -> str:
    """``HOST:PORT`` of a listener, IPv6 in brackets; ``host``: as others are to call it."""
    bound, port = listener.getsockname()[:2]
    shown = unbracketed(host) if host is not None else bound
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Host, without brackets, and port.

    Raises:
        ValueError: the address has no port.
    """
    host, _, port = address.rpartition(":")
    return unbracketed(host), int(port)


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach what listens there."""
    bare = unbracketed(host)
    try:
        return bare == "localhost" or ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def unbracketed(host: str) -> str:
    """A host as the system wants it."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
