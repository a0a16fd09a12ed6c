"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP.

A replica is ready when it could lead: the API server answers it. Whether it leads is a metric.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from penstock.base.listener import address_of, create_listener
from penstock.kube.api import Api
from penstock.kube.errors import ApiError, PortInUseError

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
        await web.SockSite(runner, listener).start()
        self._runner = runner
        self.url = f"http://{address_of(listener, self._host)}"
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
