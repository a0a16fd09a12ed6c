"""Keeping the state in an SQLite file, so that a cluster survives its process.

Writes are gathered and committed a moment later in one transaction; a crash loses at most that
moment, and never leaves half a transaction. The file is readable by its owner only: it holds the
secrets of the cluster.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import orjson

from penstock_cluster.registry.merging import managed
from penstock_cluster.registry.model.documents import Json
from penstock_cluster.registry.objects.store import Change, Key, Store, Table, Version

_DELAY_SECONDS = 0.05
_LOCK_SECONDS = 1.0
#: Versions that a crash may have lost are not given out again.
_SKIPPED_VERSIONS = 1000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    version INTEGER NOT NULL, document BLOB NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER NOT NULL)
"""


class Journal:
    """The state of one engine in one file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        os.close(descriptor)
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=_LOCK_SECONDS)
        try:
            # One process at a time: two clusters on one file would overwrite each other.
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.executescript(_SCHEMA)
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise OSError(f"{path}: {error}; is another cluster running on it?") from error
        self._dirty: dict[tuple[str, Key], Version | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._store: Store | None = None

    def secrets(self) -> dict[str, str]:
        return dict(self._connection.execute("SELECT name, value FROM secrets"))

    def keep_secrets(self, values: Mapping[str, str]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO secrets VALUES (?, ?)", list(values.items())
        )

    def restore(self, store: Store) -> None:
        """Put all objects back into an empty store."""
        rows = self._connection.execute(
            "SELECT kind, namespace, name, version, document FROM objects"
        )
        for kind, namespace, name, number, text in rows:
            document: Json = orjson.loads(text)
            listed = document["metadata"].pop("managedFields", None)
            entries = managed.from_external(listed) if listed else ()
            store.restore(kind, Version((namespace, name), number, document, entries or ()))
        for (number,) in self._connection.execute("SELECT version FROM counter"):
            store.number = max(store.number, number) + _SKIPPED_VERSIONS

    def follow(self, store: Store) -> None:
        """Write down every change from now on (and all that is there already)."""
        self._store = store
        for table in store.tables():
            for version in table.items.values():
                self._dirty[table.name, version.key] = version
        store.listeners.append(self._on_change)
        self.flush()

    def _on_change(self, table: Table, change: Change) -> None:
        self._dirty[table.name, change.after.key] = None if change.deleted else change.after
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_DELAY_SECONDS, self.flush)

    def flush(self) -> None:
        """Commit what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._store is None or not self._dirty:
            return
        changes, self._dirty = self._dirty, {}
        kept, gone = [], []
        for (kind, key), version in changes.items():
            if version is None:
                gone.append((kind, *key))
            else:
                kept.append((kind, *key, version.number, orjson.dumps(version.external())))
        execute = self._connection.execute
        execute("BEGIN")
        self._connection.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", kept)
        self._connection.executemany(
            "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?", gone
        )
        execute("INSERT OR REPLACE INTO counter VALUES (0, ?)", (self._store.number,))
        execute("COMMIT")

    def close(self) -> None:
        self.flush()
        self._connection.close()
