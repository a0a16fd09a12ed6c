"""The versioned store: every object of every kind, its recent history, and who watches it.

One counter numbers all writes, as in etcd. A write makes a new :class:`Version` of an object and
one :class:`Change` in the history of its table; nothing is changed in place. History is bounded
by age and by number of changes: what is older is *compacted*, and whoever asks for it gets 410.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from penstock_cluster.registry.merging import managed
from penstock_cluster.registry.merging.managed import Entries
from penstock_cluster.registry.model.errors import ApiError, Json, expired
from penstock_cluster.registry.model.structural_sharing import share

Key = tuple[str, str]

#: The first version: above the small numbers that clients use for "any" and "old".
_FIRST_VERSION = 100
_CACHE_LIMIT_BYTES = 16 * 2**20


class Version:
    """One version of one object. ``object`` is shared: never change it."""

    __slots__ = ("key", "managed", "number", "object")

    def __init__(self, key: Key, number: int, document: Json, entries: Entries) -> None:
        self.key = key
        self.number = number
        #: Without ``metadata.managedFields``: those are in ``managed``.
        self.object = document
        self.managed = entries

    @property
    def uid(self) -> str:
        # JSON data; a uid is text.
        return self.object["metadata"]["uid"]  # type: ignore[no-any-return]

    def external(self) -> Json:
        """The object as clients see it; serialise with orjson, do not change."""
        if not self.managed:
            return self.object
        metadata = {**self.object["metadata"], "managedFields": managed.external(self.managed)}
        return {**self.object, "metadata": metadata}

    def plain(self) -> Json:
        """The object as clients see it, as plain data."""
        if not self.managed:
            return self.object
        metadata = {**self.object["metadata"], "managedFields": managed.plain(self.managed)}
        return {**self.object, "metadata": metadata}


@dataclass(frozen=True, slots=True)
class Change:
    """One write: ``after`` is the new version, or the last one (renumbered) of a deletion."""

    number: int
    before: Version | None
    after: Version
    deleted: bool
    time: float


class Table:
    """All objects of one stored kind, in order of namespace and name."""

    __slots__ = (
        "changes",
        "closers",
        "compacted",
        "items",
        "keys",
        "latest",
        "listeners",
        "name",
    )

    def __init__(self, name: str, compacted: int) -> None:
        self.name = name
        self.items: dict[Key, Version] = {}
        self.keys: list[Key] = []
        self.changes: deque[Change] = deque()
        #: Changes up to this number are no longer in ``changes``.
        self.compacted = compacted
        #: Number of the last change.
        self.latest = compacted
        self.listeners: list[Callable[[Change], None]] = []
        #: Called by :meth:`close`.
        self.closers: list[Callable[[], None]] = []

    def close(self) -> None:
        """End the watches of a table that was dropped."""
        for end in list(self.closers):
            end()

    def in_namespace(self, namespace: str) -> Iterator[Version]:
        """The present versions, of one namespace or (empty) of all."""
        items = self.items
        if not namespace:
            for key in self.keys:
                yield items[key]
            return
        for at in range(bisect_left(self.keys, (namespace, "")), len(self.keys)):
            key = self.keys[at]
            if key[0] != namespace:
                return
            yield items[key]

    def as_of(self, number: int) -> dict[Key, Version]:
        """The versions at ``number``; :class:`ApiError` 410 when that is compacted."""
        if number < self.compacted:
            raise expired("The resourceVersion for the provided list is too old.")
        state = dict(self.items)
        for change in reversed(self.changes):
            if change.number <= number:
                break
            if change.before is None:
                state.pop(change.after.key, None)
            else:
                state[change.after.key] = change.before
        return state

    def since(self, number: int) -> Iterator[Change]:
        """The changes after ``number``; :class:`ApiError` 410 when some are compacted."""
        if number < self.compacted:
            raise expired(f"too old resource version: {number} ({self.compacted})")
        newer: list[Change] = []
        for change in reversed(self.changes):
            if change.number <= number:
                break
            newer.append(change)
        return reversed(newer)


class Store:
    """All tables, one counter.

    ``history_seconds`` and ``history_changes`` (of all tables together) bound the history.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        history_seconds: float = 300.0,
        history_changes: int = 100_000,
    ) -> None:
        self._clock = clock
        self._history_seconds = history_seconds
        self._history_changes = history_changes
        self._tables: dict[str, Table] = {}
        self._order: deque[Table] = deque()
        self.number = _FIRST_VERSION
        self._floor = _FIRST_VERSION
        self.listeners: list[Callable[[Table, Change], None]] = []
        self._bytes: dict[tuple[int, str], bytes] = {}
        self._bytes_order: deque[tuple[tuple[int, str], int]] = deque()
        self._bytes_total = 0

    def table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(name, self._floor)
        return table

    def find(self, table: str, namespace: str, name: str) -> Json | None:
        """An object as it is stored, by the name of its table."""
        version = self.table(table).items.get((namespace, name))
        return None if version is None else version.object

    def tables(self) -> list[Table]:
        return list(self._tables.values())

    def drop(self, name: str) -> Table | None:
        """Forget an empty table (its kind is gone); the result is the table, for its watches."""
        table = self._tables.get(name)
        if table is None or table.items:
            return None
        return self._tables.pop(name)

    def put(self, table: Table, key: Key, document: Json, entries: Entries) -> Version:
        """Store a new version; ``document["metadata"]`` must be the caller's to write to."""
        self.number = number = self.number + 1
        document["metadata"]["resourceVersion"] = str(number)
        version = Version(key, number, document, entries)
        before = table.items.get(key)
        if before is None:
            insort(table.keys, key)
        else:
            share(document, before.object)
        table.items[key] = version
        self._record(table, Change(number, before, version, deleted=False, time=self._clock()))
        return version

    def remove(self, table: Table, key: Key) -> Version:
        """Delete an object; the result is its last version with the number of the deletion."""
        before = table.items.pop(key)
        del table.keys[bisect_left(table.keys, key)]
        self.number = number = self.number + 1
        metadata = {**before.object["metadata"], "resourceVersion": str(number)}
        last = Version(key, number, {**before.object, "metadata": metadata}, before.managed)
        self._record(table, Change(number, before, last, deleted=True, time=self._clock()))
        return last

    def restore(self, name: str, version: Version) -> None:
        """Put back a persisted object, outside of history."""
        table = self.table(name)
        if version.key not in table.items:
            insort(table.keys, version.key)
        table.items[version.key] = version
        self.number = max(self.number, version.number)

    def close_history(self) -> None:
        """Nothing before the present can be asked for (after :meth:`restore`)."""
        self._floor = self.number
        for table in self._tables.values():
            table.compacted = self.number

    def _record(self, table: Table, change: Change) -> None:
        table.changes.append(change)
        table.latest = change.number
        self._order.append(table)
        if len(self._order) > self._history_changes:
            self._forget_oldest()
        for listener in table.listeners:
            listener(change)
        for observer in self.listeners:
            observer(table, change)

    def _forget_oldest(self) -> None:
        table = self._order.popleft()
        self._floor = table.compacted = table.changes.popleft().number

    def compact(self) -> None:
        """Forget the changes older than ``history_seconds``."""
        limit = self._clock() - self._history_seconds
        while self._order and self._order[0].changes[0].time < limit:
            self._forget_oldest()

    def compact_all(self) -> None:
        """Forget the whole history: what etcd does when it is compacted at the present."""
        while self._order:
            self._forget_oldest()
        self._floor = self.number
        for table in self._tables.values():
            table.compacted = self.number

    def encoded(self, version: Version, view: str, make: Callable[[Version], Any]) -> bytes:
        """The JSON of a version in one view, serialised once and kept for a while."""
        cache_key = (version.number, view)
        found = self._bytes.get(cache_key)
        if found is None:
            found = orjson.dumps(make(version))
            self._bytes[cache_key] = found
            self._bytes_order.append((cache_key, len(found)))
            self._bytes_total += len(found)
            while self._bytes_total > _CACHE_LIMIT_BYTES:
                oldest, size = self._bytes_order.popleft()
                del self._bytes[oldest]
                self._bytes_total -= size
        return found


def version_number(text: str, *, listing: bool) -> int:
    """Parse a ``resourceVersion`` parameter; refused as the real server refuses it."""
    if not text:
        return 0
    if text.isascii() and text.isdigit():
        return int(text)
    message = (
        f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": '
        "invalid syntax"
    )
    if listing:
        raise ApiError(400, "BadRequest", f"invalid resource version: {message}")
    raise ApiError(500, "", message)
