"""A complete list of one kind, then every change from there on.

When the server has forgotten the place (410) the list is read again; when a connection merely
breaks, the watch goes on from where it was. A watch that ends at once, with an error or without,
has failed. Pauses grow, have jitter and an upper bound.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final

from penstock.scheduler.metrics import Metrics
from penstock.scheduler.service.api import GONE, Api, CallError, RefusedError, UnavailableError

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_LONGEST_PAUSE_SECONDS: Final = 10.0
_SHORT_WATCH_SECONDS: Final = 1.0
"""A watch that ends sooner, with an error or without, did not work."""
_WATCH_SECONDS: Final = (240.0, 300.0)
_BATCH: Final = 200
"""Events after which others get a turn, while more are at hand already."""


class Watch:
    """Feeds one kind of object to whoever keeps them, for as long as `run` runs."""

    def __init__(
        self,
        api: Api,
        resource: str,
        *,
        replace: Callable[[list[Json]], None],
        put: Callable[[Json], None],
        remove: Callable[[Json], None],
        metrics: Metrics,
        random_source: random.Random,
    ) -> None:
        self._api = api
        self._resource = resource
        self._replace, self._put, self._remove = replace, put, remove
        self._metrics = metrics
        self._random = random_source
        self._position = ""
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """List and watch until cancelled."""
        failures = 0
        while True:
            begun = time.monotonic()
            try:
                if not self._position:
                    items, position = await self._api.list(self._resource)
                    self._replace(items)
                    self._position = position
                    self.synced.set()
                    begun = time.monotonic()
                await self._follow()
                why, failed = f"the watch of {self._resource} ended at once", _is_short(begun)
                if failed:
                    self._metrics.watch_restarts.labels(self._resource, "ended").inc()
            except CallError as error:
                why, failed = str(error), True
                self._metrics.watch_restarts.labels(self._resource, error.reason).inc()
                if isinstance(error, RefusedError) and error.code == GONE:
                    self._position = ""
                    failed = _is_short(begun)
            if not failed:
                failures = 0
                continue
            failures += 1
            pause = min(0.2 * 2.0 ** min(failures, 8), _LONGEST_PAUSE_SECONDS)
            pause *= self._random.uniform(0.5, 1.0)
            logger.warning("%s; next try in %.1f s", why, pause)
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        seconds = int(self._random.uniform(*_WATCH_SECONDS))
        count = 0
        async with self._api.watch(self._resource, self._position, seconds) as events:
            async for event in events:
                kind, found = event["type"], event["object"]
                if kind == "ERROR":
                    code = int(found.get("code") or 0)
                    reason = found.get("reason") or str(code)
                    error = RefusedError if code == GONE else UnavailableError
                    raise error(found.get("message") or "the watch ended", code, reason)
                if kind == "DELETED":
                    self._remove(found)
                elif kind != "BOOKMARK":
                    self._put(found)
                self._position = found["metadata"]["resourceVersion"]
                count += 1
                if count % _BATCH == 0:
                    await asyncio.sleep(0)


def _is_short(begun: float) -> bool:
    return time.monotonic() - begun < _SHORT_WATCH_SECONDS
