"""The one way in which a process of ours serves HTTP: uvicorn, bounded.

Before a caller is known there are bounds on connections, on how long one may wait, on the bytes of
a head, and on lines of the log. The bound on connections leaves descriptors for everything else
that the process does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

from penstock.base.descriptors import descriptor_limit
from penstock.base.http.accept_failures import limit_accept_failures
from penstock.base.http.connections import ConnectionTable
from penstock.base.http.h11_protocol import BoundedH11Protocol
from penstock.base.listener import ACCEPTED_AT_ONCE, BACKLOG
from penstock.base.log_limit import RepetitionFilter

MAX_CONNECTIONS: Final = 8192
HEAD_LIMIT_BYTES: Final = 64 * 1024
_LEAST_CONNECTIONS: Final = 16
_TICKS_PER_SWEEP: Final = 10
"""uvicorn has ten ticks a second."""
_LIBRARY_LOG: Final = "uvicorn.error"


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handling, which says when it accepts connections."""

    def __init__(self, config: uvicorn.Config, table: ConnectionTable[Any]) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._table = table

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signal handlers alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        limit_accept_failures(asyncio.get_running_loop())
        log = logging.getLogger(_LIBRARY_LOG)
        if not any(isinstance(each, RepetitionFilter) for each in log.filters):
            log.addFilter(RepetitionFilter())
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # asyncio knows one figure for the queue and for a turn
        self.ready.set()

    async def on_tick(self, counter: int) -> bool:
        """End connections whose time is over."""
        if counter % _TICKS_PER_SWEEP == 0:
            for connection in self._table.overdue(asyncio.get_running_loop().time()):
                connection.drop()
        return await super().on_tick(counter)


def make_server(
    app: Callable[..., Any], *, keep_alive_seconds: int, stop_seconds: int, **options: Any
) -> HttpServer:
    """A server for one event loop; give it a bound socket with ``serve(sockets=[...])``.

    ``options``: as for `uvicorn.Config`.
    """
    table: ConnectionTable[Any] = ConnectionTable(
        most_connections(descriptor_limit()), keep_alive_seconds
    )
    kind = type("Connection", (_protocol(),), {"table": table})
    config = uvicorn.Config(
        app,
        **{
            "http": kind,
            "loop": "none",
            "ws": "none",
            "lifespan": "off",
            "access_log": False,
            "backlog": ACCEPTED_AT_ONCE,
            "h11_max_incomplete_event_size": HEAD_LIMIT_BYTES,
            "timeout_keep_alive": keep_alive_seconds,
            "timeout_graceful_shutdown": stop_seconds,
            **options,
        },
    )
    return HttpServer(config, table)


def most_connections(descriptors: int) -> int:
    """How many connections there may be at once: the rest is for files, databases and clients."""
    spare = max(64, descriptors // 4)
    return max(_LEAST_CONNECTIONS, min(MAX_CONNECTIONS, descriptors - spare))


def _protocol() -> type[asyncio.Protocol]:
    try:
        from penstock.base.http.httptools_protocol import BoundedHttpToolsProtocol
    except ImportError:  # images of jobs have h11 only
        return BoundedH11Protocol
    return BoundedHttpToolsProtocol
