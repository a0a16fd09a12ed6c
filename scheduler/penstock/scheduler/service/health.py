"""``/healthz``, ``/readyz`` and ``/metrics`` over HTTP; ready is who reaches the API server."""

import socket
from types import TracebackType
from typing import Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from penstock.scheduler.errors import SchedulerError
from penstock.scheduler.metrics import Metrics
from penstock.scheduler.service.api import Api, CallError


class PortInUseError(SchedulerError):
    """The address to listen on is taken; the message names it."""


class HealthServer:
    """An asynchronous context manager; ``url`` is where it listens."""

    def __init__(self, host: str, port: int, metrics: Metrics, api: Api) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._api = api
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._show_metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        is_v6 = ":" in self._host
        listener = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET)
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
        shown = f"[{self._host}]" if is_v6 else self._host
        self.url = f"http://{shown}:{listener.getsockname()[1]}"
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
            await self._api.ping()
        except CallError as error:
            return web.Response(status=503, text=f"{error}\n")
        return web.Response(text="ok\n")

    async def _show_metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
