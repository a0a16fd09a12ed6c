"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP.

A replica is ready when it could lead: the API server answers it. Whether it leads is a metric.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from penstock.base.http.accept_failures import limit_accept_failures
from penstock.base.listener import ACCEPTED_AT_ONCE, BACKLOG, address_of, create_listener
from penstock.kube.api import Api
from penstock.kube.errors import ApiError, PortInUseError

MAX_CONNECTIONS: Final = 128
CONNECTION_SECONDS: Final = 30.0
"""Whoever asks makes another; a scrape takes less."""
_SWEEP_SECONDS: Final = 1.0
_READY_SECONDS: Final = 5.0
"""A probe that gets no answer for longer learns nothing."""


class ProbeServer:
    """An asynchronous context manager; ``url`` is where it listens.

    Args:
        host: address to listen on.
        port: 0: a free one.
        registry: what ``/metrics`` shows.
        api: the API server that ``/readyz`` asks.
        resource: a kind that this process may list.
        refresh: called before metrics are shown.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        api: Api,
        resource: str,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = host
        self._port = port
        self._registry = registry
        self._api = api
        self._resource = resource
        self._refresh = refresh
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            listener = create_listener(self._host, self._port)
        except OSError as error:
            await runner.cleanup()
            raise PortInUseError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}; choose another"
                " --metrics-port, or 0 for a free one"
            ) from error
        self._runner = runner
        await self._listen(runner, listener)
        self.url = f"http://{address_of(listener, self._host)}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self, runner: web.AppRunner, listener: socket.socket) -> None:
        """Serve, with bounds: aiohttp counts no connections, and waits for a request for ever."""
        loop = asyncio.get_running_loop()
        limit_accept_failures(loop)
        newest: deque[tuple[float, asyncio.BaseProtocol]] = deque()

        def connect() -> asyncio.BaseProtocol:
            assert runner.server is not None  # it has been set up
            connection = runner.server()
            newest.append((loop.time(), connection))
            if len(newest) > MAX_CONNECTIONS:
                _end(newest.popleft()[1])
            return connection

        def sweep() -> None:
            while newest and newest[0][0] < loop.time() - CONNECTION_SECONDS:
                _end(newest.popleft()[1])
            self._sweeping = loop.call_later(_SWEEP_SECONDS, sweep)

        sweep()
        self._server = await loop.create_server(connect, sock=listener, backlog=ACCEPTED_AT_ONCE)
        listener.listen(BACKLOG)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._api.ping(self._resource)
        except ApiError as error:
            return web.Response(status=503, text=f"the API server does not answer us: {error}\n")
        except TimeoutError:
            text = f"the API server has not answered within {_READY_SECONDS:.0f} s\n"
            return web.Response(status=503, text=text)
        return web.Response(text="ok\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        self._refresh()
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _end(connection: asyncio.BaseProtocol) -> None:
    transport = getattr(connection, "transport", None)
    if transport is not None:  # it is None once it has ended
        transport.abort()
