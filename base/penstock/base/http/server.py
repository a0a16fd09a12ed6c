"""The one way in which a process of ours serves HTTP: uvicorn, bounded.

Before a caller is known there are bounds on connections, on how long one may wait, on the bytes of
a head, and on lines of the log. The bound on connections leaves descriptors for everything else
that the process does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

from penstock.base.descriptors import descriptor_limit
from penstock.base.http.accept_failures import limit_accept_failures
from penstock.base.http.certificate import ServingCertificate
from penstock.base.http.connections import ConnectionTable
from penstock.base.http.h11_protocol import BoundedH11Protocol
from penstock.base.listener import ACCEPTED_AT_ONCE, BACKLOG
from penstock.base.log_limit import RepetitionFilter

MAX_CONNECTIONS: Final = 8192
HEAD_LIMIT_BYTES: Final = 64 * 1024
_LEAST_CONNECTIONS: Final = 16
_TICKS_PER_SWEEP: Final = 10
"""uvicorn has ten ticks a second."""
_TICKS_PER_RENEWAL: Final = 100
HANDSHAKE_SECONDS: Final = 5.0
"""For TLS: before its end a connection is not counted, but has a descriptor."""
_LIBRARY_LOG: Final = "uvicorn.error"


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handling, which says when it accepts connections.

    With a ``certificate`` its sockets speak TLS, but for those that are given to ``serve_plainly``.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        table: ConnectionTable[Any],
        certificate: ServingCertificate | None = None,
    ) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._table = table
        self._certificate = certificate
        self._plain: list[socket.socket] = []

    def serve_plainly(self, listener: socket.socket) -> None:
        """Of the sockets of ``serve`` this one speaks no TLS."""
        self._plain.append(listener)

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
        if self._certificate is None:
            await super().startup(sockets)
        else:
            await self._start_listeners(sockets or [], self._certificate.context)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # asyncio knows one figure for the queue and for a turn
        self.ready.set()

    async def _start_listeners(self, sockets: list[socket.socket], context: ssl.SSLContext) -> None:
        """As uvicorn does, with a bound for the handshake, and sockets without one beside."""
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            kind = self.config.http_protocol_class
            return kind(  # type: ignore[call-arg]  # uvicorn's protocols share more than their base
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )

        self.servers = []
        for listener in sockets:
            plain = listener in self._plain
            server = await loop.create_server(
                connection,
                sock=listener,
                ssl=None if plain else context,
                ssl_handshake_timeout=None if plain else HANDSHAKE_SECONDS,
                backlog=self.config.backlog,
            )
            self.servers.append(server)
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """End connections whose time is over, and look for a renewed certificate."""
        if self._certificate is not None and counter % _TICKS_PER_RENEWAL == 0:
            self._certificate.refresh()
        if counter % _TICKS_PER_SWEEP == 0:
            for connection in self._table.overdue(asyncio.get_running_loop().time()):
                connection.drop()
        return await super().on_tick(counter)


def make_server(
    app: Callable[..., Any],
    *,
    keep_alive_seconds: int,
    stop_seconds: int,
    certificate: ServingCertificate | None = None,
    **options: Any,
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
    return HttpServer(config, table, certificate)


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
