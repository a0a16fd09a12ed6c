"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP.

A replica is ready when it could lead: it reaches the API server. Whether it leads is a metric.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from penstock.controller.metrics import Metrics


class PortInUseError(Exception):
    """The address to listen on is taken; the message names it."""


class HealthServer:
    """An asynchronous context manager; ``url`` is where it listens."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        is_ready: Callable[[], Awaitable[bool]],
        refresh: Callable[[], None],
    ) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._is_ready = is_ready
        self._refresh = refresh
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._serve_metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        listener = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._host, self._port))
        except OSError as error:
            listener.close()
            await runner.cleanup()
            raise PortInUseError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}; choose another"
                " --metrics-port, or 0 for a free one"
            ) from error
        await web.SockSite(runner, listener).start()
        self._runner = runner
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{listener.getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if await self._is_ready():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the API server cannot be reached\n")

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        self._refresh()
        body = generate_latest(self._metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
