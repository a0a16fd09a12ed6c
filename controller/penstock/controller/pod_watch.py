"""The watch of pods: a paged list, then every change from its resourceVersion on.

The framework that watches ElasticJobs and Scales costs several times as much for each event and
object, and there are many more pods than jobs; so the controller watches pods itself, keeps a few
fields of each, and feeds the same queue. When the server has forgotten the place (410) the list is
read again; when the connection merely breaks, the watch goes on from where it was. A watch that
ends at once, or is forgotten again and again, is a failure like any other: pauses grow, with
jitter and an upper bound. `compare` makes good what no watch has told.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from penstock.controller.api import Api, ApiError, ApiRefusedError, ApiUnavailableError
from penstock.controller.metrics import Metrics
from penstock.controller.store import Store
from penstock.crds import labels

logger = logging.getLogger(__name__)

_GONE: Final = 410
_LONGEST_PAUSE_SECONDS: Final = 10.0
_SHORT_WATCH_SECONDS: Final = 1.0
"""A watch that ends sooner, with an error or without, did not work."""


class PodWatch:
    """Keeps a store's pods up to date for as long as `run` runs."""

    def __init__(
        self,
        api: Api,
        store: Store,
        metrics: Metrics,
        namespace: str | None,
        random_source: random.Random,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._monotonic = monotonic
        self._api = api
        self._store = store
        self._metrics = metrics
        self._namespace = namespace
        self._random = random_source
        self._position = ""
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """List and watch until cancelled."""
        failures = 0
        while True:
            begun = self._monotonic()
            try:
                if not self._position:
                    await self._list()
                    begun = self._monotonic()
                await self._follow()
                why, failed = "it ended at once", self._is_short(begun)
                if failed:
                    self._metrics.watch_restarts.labels("ended").inc()
            except ApiError as error:
                why, failed = str(error), True
                if isinstance(error, ApiRefusedError) and error.code == _GONE:
                    self._position = ""
                    failed = self._is_short(begun)
                    self._metrics.watch_restarts.labels("expired").inc()
                else:
                    self._metrics.watch_restarts.labels(error.reason).inc()
            if not failed:
                failures = 0
                continue
            failures += 1
            pause = min(0.2 * 2 ** min(failures, 8), _LONGEST_PAUSE_SECONDS)
            pause *= self._random.uniform(0.5, 1.0)
            logger.warning("the watch of pods broke: %s; next try in %.1f s", why, pause)
            await self._sleep(pause)

    def _is_short(self, begun: float) -> bool:
        return self._monotonic() - begun < _SHORT_WATCH_SECONDS

    async def compare(self) -> None:
        """Read a complete list beside the watch: it makes good an event that never came.

        Raises:
            ApiError: the list could not be read.
        """
        page = await self._api.list("pods", self._namespace, labels.JOB_UID)
        self._store.replace_pods(page.items, int(page.resource_version))

    async def _list(self) -> None:
        page = await self._api.list("pods", self._namespace, labels.JOB_UID)
        self._store.replace_pods(page.items, int(page.resource_version))
        self._position = page.resource_version
        self.synced.set()

    async def _follow(self) -> None:
        watch = self._api.watch(
            "pods",
            self._namespace,
            resource_version=self._position,
            selector=labels.JOB_UID,
            timeout_seconds=int(self._random.uniform(240, 300)),
        )
        async with watch as events:
            await self._take(events)

    async def _take(self, events: AsyncIterator[dict[str, Any]]) -> None:
        async for event in events:
            kind, found = event["type"], event["object"]
            if kind == "ERROR":
                code = int(found.get("code") or 0)
                message = found.get("message") or "the watch ended with an error"
                reason = found.get("reason") or str(code)
                if code == _GONE:
                    raise ApiRefusedError(message, code=code, reason=reason)
                raise ApiUnavailableError(message, code=code, reason=reason)
            self._store.watched_pod(kind, found)
            self._position = found["metadata"]["resourceVersion"]
