"""Watching a table: a bounded, ordered stream of events for one consumer.

A watch with a selector translates: an object that begins to match is ADDED, one that stops is
DELETED in its old form with the new version. The order is that of the writes; a consumer that
falls too far behind is cut off with 410 and must list again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock_cluster.registry.model.errors import ApiError, Json, expired
from penstock_cluster.registry.objects.store import Change, Table, Version

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
BACKLOG_LIMIT = 65_536


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event; ``object`` is shared with the store: never change it."""

    type: EventType
    object: Json


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event as the store sees it, before it is given a client's form."""

    type: EventType
    version: Version


Match = Callable[[Version], bool]


class Subscription:
    """The events of one table for one consumer, from a point in time on."""

    __slots__ = (
        "_buffer",
        "_failure",
        "_match",
        "_namespace",
        "_waiter",
        "after",
        "finished",
        "table",
    )

    def __init__(self, table: Table, namespace: str, match: Match | None, after: int) -> None:
        self.table = table
        self._namespace = namespace
        self._match = match
        self._buffer: deque[StoredEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: ApiError | None = None
        #: The stream is to end without an error.
        self.finished = False
        #: Changes up to this number are not delivered.
        self.after = after

    def open(self) -> None:
        """Replay the history after ``after`` and follow; raises :class:`ApiError` 410."""
        for change in self.table.since(self.after):
            self._take(change)
        self._follow()

    def open_with_state(self) -> list[Version]:
        """The present objects that match; follow from here."""
        self._follow()
        match = self._match
        return [
            version
            for version in self.table.in_namespace(self._namespace)
            if match is None or match(version)
        ]

    def _follow(self) -> None:
        self.table.listeners.append(self._on_change)
        self.table.closers.append(self.finish)

    def close(self) -> None:
        if self._on_change in self.table.listeners:
            self.table.listeners.remove(self._on_change)
            self.table.closers.remove(self.finish)
        self._buffer.clear()

    @property
    def backlog(self) -> int:
        """How many events wait for the consumer."""
        return len(self._buffer)

    def fail(self, error: ApiError) -> None:
        """End the stream with an error, e.g. because the kind is gone."""
        self._failure = error
        self._wake()

    def finish(self) -> None:
        """End the stream without an error."""
        self.finished = True
        self._wake()

    def _on_change(self, change: Change) -> None:
        if change.number > self.after:
            self._take(change)

    def _take(self, change: Change) -> None:
        after = change.after
        if self._namespace and after.key[0] != self._namespace:
            return
        event = self._translate(change)
        if event is None:
            return
        if len(self._buffer) >= BACKLOG_LIMIT:
            self._failure = expired("the watch fell too far behind; list again")
            self._wake()
            return
        self._buffer.append(event)
        self._wake()

    def _translate(self, change: Change) -> StoredEvent | None:
        before, after, match = change.before, change.after, self._match
        if match is None:
            if change.deleted:
                return StoredEvent("DELETED", after)
            return StoredEvent("ADDED" if before is None else "MODIFIED", after)
        matched = before is not None and match(before)
        matches = not change.deleted and match(after)
        if matches:
            return StoredEvent("MODIFIED" if matched else "ADDED", after)
        if not matched or before is None:
            return None
        if change.deleted:
            return StoredEvent("DELETED", after)
        metadata = {**before.object["metadata"], "resourceVersion": str(change.number)}
        document = {**before.object, "metadata": metadata}
        # A version of its own: its number is that of the write, its content the old one.
        return StoredEvent("DELETED", Version(after.key, -change.number, document, before.managed))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take_nowait(self) -> list[StoredEvent]:
        """What has gathered; raises the stream's :class:`ApiError` once nothing is left."""
        if self._buffer:
            events = list(self._buffer)
            self._buffer.clear()
            return events
        if self._failure is not None:
            raise self._failure
        return []

    async def take(self, timeout_seconds: float | None = None) -> list[StoredEvent]:
        """Wait for events; empty when the time is up."""
        events = self.take_nowait()
        if events or self.finished:
            return events
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = (
            loop.call_later(max(0.0, timeout_seconds), self._wake)
            if timeout_seconds is not None
            else None
        )
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        return self.take_nowait()


def bookmark(api_version: str, kind: str, number: int, *, initial_events_end: bool = False) -> Json:
    """The object of a BOOKMARK: nothing but its kind and a version."""
    metadata: dict[str, Any] = {"resourceVersion": str(number)}
    if initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata}
