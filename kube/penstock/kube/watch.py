"""A complete list of one kind, then every change from its resourceVersion on.

When the server has forgotten the place (410) the list is read again; when the connection merely
breaks, the watch goes on from where it was. A watch that ends at once, or is forgotten again and
again, is a failure like any other: pauses grow, with jitter and an upper bound.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.kube.api import Api, Json, Page
from penstock.kube.errors import ApiError, ApiRefusedError, ApiUnavailableError

logger = logging.getLogger(__name__)

_GONE: Final = 410
_LONGEST_PAUSE_SECONDS: Final = 10.0
_SHORT_WATCH_SECONDS: Final = 1.0
"""A watch that ends sooner, with an error or without, did not work."""
_WATCH_SECONDS: Final = (240.0, 300.0)
_BATCH: Final = 200
"""Events after which others get a turn, while more are at hand already."""


class Watch:
    """Feeds one kind of object to whoever keeps them, for as long as `run` runs.

    Args:
        api: the API server.
        resource: the kind, in the plural.
        replace: given a complete list, which takes the place of all that went before.
        take: given every change, ``ADDED``, ``MODIFIED`` or ``DELETED``, with the object; and
            ``BOOKMARK``, whose object has nothing but a resourceVersion.
        namespace: None: all of them.
        selector: by labels.
        restarted: told the cause whenever the watch begins anew: ``ended`` at once, ``expired``
            (410), or the reason of an `ApiError`.
    """

    def __init__(
        self,
        api: Api,
        resource: str,
        *,
        replace: Callable[[Page], None],
        take: Callable[[str, Json], None],
        namespace: str | None = None,
        selector: str = "",
        restarted: Callable[[str], None] = lambda _: None,
        random_source: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._resource = resource
        self._replace, self._take = replace, take
        self._namespace, self._selector = namespace, selector
        self._restarted = restarted
        self._random = random_source
        self._sleep, self._monotonic = sleep, monotonic
        self._position = ""
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """List and watch until cancelled."""
        failures = 0
        while True:
            begun, listed = self._monotonic(), not self._position
            try:
                if listed:
                    await self._list()
                    begun = self._monotonic()
                await self._follow()
                why, failed = "it ended at once", self._is_short(begun)
                if failed:
                    self._restarted("ended")
            except ApiError as error:
                why, failed = str(error), True
                if isinstance(error, ApiRefusedError) and error.code == _GONE:
                    self._position = ""
                    # A place from before is old, and no sign that a new one would be.
                    failed = listed and self._is_short(begun)
                    self._restarted("expired")
                else:
                    self._restarted(error.reason)
            if not failed:
                failures = 0
                continue
            failures += 1
            pause = min(0.2 * 2.0 ** min(failures, 8), _LONGEST_PAUSE_SECONDS)
            pause *= self._random.uniform(0.5, 1.0)
            logger.warning(
                "the watch of %s broke: %s; next try in %.1f s", self._resource, why, pause
            )
            await self._sleep(pause)

    def _is_short(self, begun: float) -> bool:
        return self._monotonic() - begun < _SHORT_WATCH_SECONDS

    async def _list(self) -> None:
        page = await self._api.list(self._resource, self._namespace, self._selector)
        self._replace(page)
        self._position = page.resource_version
        self.synced.set()

    async def _follow(self) -> None:
        watch = self._api.watch(
            self._resource,
            self._namespace,
            resource_version=self._position,
            selector=self._selector,
            timeout_seconds=int(self._random.uniform(*_WATCH_SECONDS)),
        )
        count = 0
        async with watch as events:
            async for event in events:
                kind, found = event["type"], event["object"]
                if kind == "ERROR":
                    raise _error(found)
                self._take(kind, found)
                self._position = found["metadata"]["resourceVersion"]
                count += 1
                if count % _BATCH == 0:
                    await asyncio.sleep(0)


def _error(status: Json) -> ApiError:
    code = int(status.get("code") or 0)
    kind = ApiRefusedError if code == _GONE else ApiUnavailableError
    message = status.get("message") or "the watch ended with an error"
    return kind(message, code=code, reason=status.get("reason") or str(code))
