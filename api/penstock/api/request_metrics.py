"""Counts and times every request, by route rather than by path."""

from __future__ import annotations

import time
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_STREAMS: Final = frozenset({"/v1/jobs/{uid}/plans/watch"})


class RequestMetrics:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._seconds = Histogram(
            "penstock_api_request_duration_seconds",
            "Time to answer a request; streams are counted when they begin.",
            ["method", "route", "status"],
            buckets=_BUCKETS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 500
        observed = False

        def observe() -> None:
            nonlocal observed
            if not observed:
                observed = True
                # A path that no route knows must not become a label.
                route = getattr(scope.get("route"), "path", "none")
                method = scope["method"] if route != "none" else "none"
                self._seconds.labels(method, route, str(status)).observe(time.monotonic() - began)

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if getattr(scope.get("route"), "path", "") in _STREAMS:
                    observe()
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            observe()
