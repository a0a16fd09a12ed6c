"""Watches over HTTP: a stream of events, one JSON document per line."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import orjson

from penstock_cluster.apiserver.content.parameters import ListOptions
from penstock_cluster.apiserver.content.representation import Writer
from penstock_cluster.registry import ApiError, Engine, RequestFacts, WatchEvent
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.field_selectors import matcher
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import version_number
from penstock_cluster.registry.objects.watch import StoredEvent, Subscription, bookmark

#: Without ``timeoutSeconds`` a watch lasts this long, and up to twice as long.
_SHORTEST_SECONDS = 1800
_BOOKMARK_SECONDS = 60.0
#: The last bookmark comes this long before the end.
_LAST_BOOKMARK_SECONDS = 2.0
#: At most this many events are joined into one piece of the stream.
_BATCH = 512
#: A watcher that takes nothing for this long while so many events wait for it is cut off. The real
#: server waits less, for fewer; but here its clients often share the processor with it.
SLOW_SECONDS = 5.0
SLOW_EVENTS = 1_000


class WatchStream:
    """One watch; iterate over :meth:`pieces` after :meth:`open`."""

    def __init__(
        self,
        engine: Engine,
        resource: Resource,
        namespace: str,
        options: ListOptions,
        writer: Writer,
        facts: RequestFacts,
    ) -> None:
        self._engine = engine
        self._resource = resource
        self._options = options
        self._writer = writer
        #: The request that opened it.
        self.facts = facts
        match = matcher(resource, options.label_selector, options.field_selector)
        number = version_number(options.resource_version, listing=False)
        initial = options.send_initial_events
        self._with_state = initial if initial is not None else number == 0
        after = engine.store.number if self._with_state or number == 0 else number
        self.subscription = Subscription(
            engine.store.table(resource.storage), namespace, match, after
        )
        self._first: list[bytes] = []
        self._failure: ApiError | None = None
        #: Since when the piece that was made last has not been taken; None: it has been.
        self._waits_since: float | None = None

    def open(self) -> None:
        """Begin to gather events; the present objects are written down."""
        try:
            if self._with_state:
                for version in self.subscription.open_with_state():
                    if self._is_sent("ADDED", version.object):
                        self._first.append(self._writer.event("ADDED", version))
                if self._options.send_initial_events and self._options.bookmarks:
                    document = self._bookmark(initial_events_end=True)
                    self._first.append(self._writer.bookmark(document))
            else:
                self.subscription.open()
        except ApiError as error:
            self._failure = error

    def close(self) -> None:
        self.subscription.close()

    def fail(self, error: ApiError) -> None:
        """Begin with an error instead of events."""
        self._failure = error

    def finish(self) -> None:
        """End the stream, without an error."""
        self.subscription.finish()

    @property
    def is_too_slow(self) -> bool:
        """Whether the watcher takes nothing while more and more waits for it."""
        since = self._waits_since
        return (
            since is not None
            and asyncio.get_running_loop().time() - since >= SLOW_SECONDS
            and self.subscription.backlog >= SLOW_EVENTS
        )

    def _bookmark(self, *, initial_events_end: bool = False) -> Json:
        resource = self._resource
        number = max(self.subscription.after, self.subscription.table.latest)
        return bookmark(
            resource.api_version, resource.kind, number, initial_events_end=initial_events_end
        )

    def _is_sent(self, kind: str, document: Json) -> bool:
        interceptor = self._engine.interceptor
        if interceptor is None:
            return True
        # The kind is one of its literals.
        return interceptor.on_watch_event(self.facts, WatchEvent(kind, document))  # type: ignore[arg-type]

    def _write(self, event: StoredEvent) -> bytes:
        if not self._is_sent(event.type, event.version.object):
            return b""
        return self._writer.event(event.type, event.version)

    @staticmethod
    def _error(error: ApiError) -> bytes:
        return orjson.dumps({"type": "ERROR", "object": error.status}) + b"\n"

    async def pieces(self) -> AsyncIterator[bytes]:
        """The stream; ends at the time limit, after an error, or when it is closed."""
        loop = asyncio.get_running_loop()
        async for piece in self._pieces():
            self._waits_since = loop.time()
            yield piece
            self._waits_since = None

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._failure is not None:
            yield self._error(self._failure)
            return
        if self._first:
            first, self._first = self._first, []
            for at in range(0, len(first), _BATCH):
                yield b"".join(first[at : at + _BATCH])
        loop = asyncio.get_running_loop()
        seconds = self._options.timeout_seconds
        if not seconds:
            # Spreads load, no secret.
            seconds = _SHORTEST_SECONDS + random.randrange(_SHORTEST_SECONDS)  # noqa: S311
        end = loop.time() + seconds
        next_bookmark = self._next_bookmark(loop.time(), end)
        while not self.subscription.finished:
            now = loop.time()
            if now >= end:
                return
            if next_bookmark is not None and now >= next_bookmark:
                yield self._writer.bookmark(self._bookmark())
                next_bookmark = self._next_bookmark(now, end)
                continue
            until = end if next_bookmark is None else min(end, next_bookmark)
            try:
                events = await self.subscription.take(until - now)
            except ApiError as error:
                yield self._error(error)
                return
            for at in range(0, len(events), _BATCH):
                piece = b"".join(map(self._write, events[at : at + _BATCH]))
                if piece:
                    yield piece

    def _next_bookmark(self, now: float, end: float) -> float | None:
        if not self._options.bookmarks:
            return None
        last = end - _LAST_BOOKMARK_SECONDS
        if now >= last:
            return None
        return min(now + _BOOKMARK_SECONDS, last)
