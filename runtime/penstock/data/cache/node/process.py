"""The cache of a node as a process: its lock, its sockets, its end.

One daemon has a socket: who holds the lock beside it may replace what was left there. The lock is
the kernel's (flock), so that a daemon that was killed leaves neither a lock nor memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.base.descriptors import raise_descriptor_limit
from penstock.base.listener import (
    address_of,
    create_file_listener,
    create_listener,
    create_local_listener,
    split_address,
)
from penstock.data.cache.node.contents import Contents
from penstock.data.cache.node.daemon import CacheDaemon
from penstock.data.cache.peers import Peers, resolve
from penstock.data.cache.policy import LARGEST_BYTES, RANGE_BYTES
from penstock.data.cache.timeouts import PEER_ANSWER_SECONDS

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """How a daemon is run; see `penstock.data.cache.commands` for what each means."""

    place: str
    memory: int
    paths: tuple[str, ...]
    largest: int = LARGEST_BYTES
    listen: str | None = None
    name: str | None = None
    peers: tuple[str, ...] = ()
    token: str = ""
    private: bool = False
    metrics: tuple[str, int] | None = None
    """Host and port of ``/metrics``; None: it is not served."""
    answer_seconds: float = PEER_ANSWER_SECONDS


class CacheRunError(Exception):
    """A daemon cannot begin; says which option, and what to do."""


def run(options: DaemonOptions) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        CacheRunError: it cannot begin.
    """
    ending = threading.Event()
    raise_descriptor_limit()  # for each program a connection, and the files that they pass
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_local_listener(options.place))
        peers, remote = None, None
        if options.listen is not None:
            remote = _listener(options.listen)
            stack.enter_context(contextlib.closing(remote))
            peers = _peers(options, remote)
        try:
            contents = Contents(options.memory, options.paths, options.largest)
        except (OSError, OverflowError, ValueError) as error:
            raise CacheRunError(f"--memory: {options.memory}: {error}") from error
        daemon = CacheDaemon(contents, peers, private=options.private)
        accepting = [_start(daemon.serve, listener)]
        if remote is not None:
            accepting.append(_start(daemon.serve_peers, remote))
        if options.metrics is not None:
            stack.enter_context(_metrics(options.metrics, contents, options.memory, accepting))
        logger.info(
            "%d bytes for %s at %s", options.memory, ", ".join(options.paths), options.place
        )
        for remark in remarks(options):
            logger.warning("%s", remark)
        while not ending.wait(60):
            pass
        daemon.end()


def remarks(options: DaemonOptions) -> list[str]:
    """What is allowed, and hardly meant: paths that are not there, memory for nothing."""
    found = [
        f"--paths: {path}: no such folder; its files are kept once there is one"
        for path in options.paths
        if not Path(path).is_dir()
    ]
    if options.memory < RANGE_BYTES:
        found.append(
            f"--memory: {options.memory} bytes: files that are larger, or a range of them "
            f"({RANGE_BYTES} bytes), are not kept; give more"
        )
    return found


@contextlib.contextmanager
def _metrics(
    place: tuple[str, int],
    contents: Contents,
    memory: int,
    accepting: Sequence[threading.Thread],
) -> Iterator[None]:
    from penstock.data.cache.node.metrics import MetricsServer, exposition

    try:
        listener = create_listener(*place)
    except (OSError, ValueError) as error:
        raise CacheRunError(f"--metrics-port: {place[1]}: {error}; give another") from error
    logger.info("metrics at http://%s/metrics", address_of(listener))
    server = MetricsServer(
        listener,
        lambda: exposition(contents.report(), memory),
        lambda: all(thread.is_alive() for thread in accepting),
    )
    try:
        yield
    finally:
        server.end()
        listener.close()


def _start(serve: Callable[[socket.socket], None], listener: socket.socket) -> threading.Thread:
    thread = threading.Thread(
        target=serve, args=(listener,), name="penstock-cache-accept", daemon=True
    )
    thread.start()
    return thread


def _listener(address: str) -> socket.socket:
    try:
        return create_listener(*split_address(address))
    except (OSError, ValueError) as error:
        raise CacheRunError(f"--listen: {address}: {error}; give HOST:PORT") from error


def _peers(options: DaemonOptions, remote: socket.socket) -> Peers:
    if not options.token:
        raise CacheRunError("--listen: other nodes prove that they hold a token: give --token-file")
    name = options.name or address_of(remote)
    found = sorted(resolve(name) or ())
    if not found:
        raise CacheRunError(f"--name: {name}: no address of that name is known")
    return Peers(found[0], options.peers, options.token, options.answer_seconds)


@contextlib.contextmanager
def _local_listener(place: str) -> Iterator[socket.socket]:
    """A listening socket at a place that nobody else listens at."""
    with contextlib.ExitStack() as stack:
        if not place.startswith("@"):
            stack.enter_context(_lock(place))
        try:
            if place.startswith("@"):
                listener = create_local_listener(place[1:])
            else:
                listener = create_file_listener(place)
        except OSError as error:
            raise CacheRunError(f"--socket: {place}: {error.strerror or error}") from error
        stack.enter_context(contextlib.closing(listener))
        try:
            yield listener
        finally:
            if not place.startswith("@"):
                Path(place).unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(place: str) -> Iterator[None]:
    try:
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CacheRunError(f"--socket: {place}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise CacheRunError(f"--socket: {place}: another cache has it; give another") from error
    try:
        yield
    finally:
        os.close(descriptor)


def checked_peers(text: Sequence[str]) -> tuple[str, ...]:
    """HOST:PORT of each, several separated by commas.

    Raises:
        ValueError: one that is none.
    """
    found = [one.strip() for each in text for one in each.split(",") if one.strip()]
    for one in found:
        host, _, port = one.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{one}; expected HOST:PORT")
    return tuple(found)
