"""A queue of keys for the built-in controllers: each key once, in order, in batches.

A key whose handling is refused (say, by an admission policy) is logged and tried again a second
later; no refusal stops the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from penstock_cluster.registry.model.errors import ApiError

Key = TypeVar("Key", bound=Hashable)

_BATCH = 256
_RETRY_SECONDS = 1.0
logger = logging.getLogger(__name__)


class WorkQueue(Generic[Key]):
    """Hands keys to ``handle``; nothing runs before :meth:`start` or after :meth:`stop`."""

    def __init__(self, name: str, handle: Callable[[Key], None]) -> None:
        self._name = name
        self._handle = handle
        self._keys: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        self._loop = None
        self._keys.clear()
        self._queued.clear()

    def add(self, key: Key) -> None:
        """Queue a key, unless it waits already."""
        if self._loop is None or key in self._queued:
            return
        self._queued.add(key)
        self._keys.append(key)
        self._schedule()

    def _schedule(self) -> None:
        if self._loop is not None and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._scheduled = False
        for _ in range(min(_BATCH, len(self._keys))):
            if self._loop is None:
                return
            key = self._keys.popleft()
            self._queued.discard(key)
            try:
                self._handle(key)
            except ApiError as error:
                if error.is_not_found or error.is_conflict:
                    # It changed meanwhile: the change has queued it again.
                    continue
                logger.warning("%s: %s: %s", self._name, key, error.message)
                self._loop.call_later(_RETRY_SECONDS, self.add, key)
        if self._keys:
            self._schedule()
