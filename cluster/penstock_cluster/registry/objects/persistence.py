"""Keeping the state in an SQLite file, so that a cluster survives its process.

Writes are gathered and committed a moment later in one transaction, which is at once where a client
waits for it (`Journal.saved`): a process that is killed loses nothing that was answered as written,
and never leaves half a transaction; a machine that loses its power may lose the last moments, since
commits do not wait for the disk. Changes that cannot be written, as on a full disk, are
kept and tried again until they are: the log says so once, clients' further writes are refused
meanwhile (`Journal.problem`), and :meth:`Journal.close` raises when they are lost. The file is
readable by its owner only: it holds the secrets of the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import orjson

from penstock_cluster.registry.merging import managed
from penstock_cluster.registry.model.documents import Json
from penstock_cluster.registry.objects.store import Change, Key, Store, Table, Version

_DELAY_SECONDS = 0.05
_RETRY_SECONDS = 1.0
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
logger = logging.getLogger(__name__)


class Journal:
    """The state of one engine in one file."""

    def __init__(self, path: Path) -> None:
        """Open or make the file.

        Raises:
            OSError: it is in use, no database or not to be written; the text names it.
        """
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
        except sqlite3.Error as error:
            self._connection.close()
            raise OSError(f"{path}: {error}{_advice(error)}") from error
        self._path = path
        self.problem = ""
        """Why what has gathered could not be written; empty: it could."""
        self._dirty: dict[tuple[str, Key], Version | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._saved: asyncio.Future[None] | None = None  # of the commit that somebody waits for
        self._store: Store | None = None

    def secret(self, name: str) -> str | None:
        """What `keep_secret` has kept; None: nothing."""
        found = self._connection.execute("SELECT value FROM secrets WHERE name = ?", (name,))
        row = found.fetchone()
        return None if row is None else str(row[0])

    def keep_secret(self, name: str, value: str) -> None:
        """Write a secret down at once; raises OSError that names the file."""
        try:
            with self._transaction() as connection:
                connection.execute("INSERT OR REPLACE INTO secrets VALUES (?, ?)", (name, value))
        except sqlite3.Error as error:
            raise OSError(f"{self._path}: {error}") from error

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

    async def saved(self) -> str:
        """Wait until what has gathered is committed; says why it could not be, or nothing.

        Whoever asks at the same moment shares a transaction.
        """
        if self._dirty and not self.problem:
            if self._saved is None:
                loop = asyncio.get_running_loop()
                self._saved = loop.create_future()
                # After what other clients have sent by now, which is then in the same transaction.
                loop.call_soon(loop.call_soon, self.flush)
            await asyncio.shield(self._saved)
        return self.problem if self._dirty else ""

    def flush(self) -> None:
        """Commit what has gathered; what cannot be is kept, and tried again in a moment."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()
        waiting, self._saved = self._saved, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _flush(self) -> None:
        try:
            self._commit()
        except sqlite3.Error as error:
            if not self.problem:
                logger.error(
                    "%s: changes cannot be saved: %s; they are in memory only, and tried again "
                    "every second until there is room; no client writes meanwhile",
                    self._path,
                    error,
                )
            self.problem = f"{self._path}: {error}"
            self._timer = asyncio.get_running_loop().call_later(_RETRY_SECONDS, self.flush)
            return
        if self.problem:
            self.problem = ""
            logger.warning("%s: all changes are saved again", self._path)

    def _commit(self) -> None:
        """Write what has gathered in one transaction, and only then forget it."""
        if self._store is None or not self._dirty:
            return
        kept, gone = [], []
        for (kind, key), version in self._dirty.items():
            if version is None:
                gone.append((kind, *key))
            else:
                kept.append((kind, *key, version.number, orjson.dumps(version.external())))
        with self._transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", kept)
            connection.executemany(
                "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?", gone
            )
            connection.execute(
                "INSERT OR REPLACE INTO counter VALUES (0, ?)", (self._store.number,)
            )
        self._dirty.clear()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN")
        try:
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:  # SQLite itself rolls back where the disk is full
                connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Write what is left and close the file.

        Raises:
            OSError: the last changes could not be written and are lost.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._commit()
        except sqlite3.Error as error:
            count = len(self._dirty)
            raise OSError(
                f"{self._path}: the last changes, of {count} object{'s' * (count > 1)}, could not "
                f"be saved and are lost: {error}"
            ) from error
        finally:
            self._connection.close()
            self._store = None
            if self._saved is not None and not self._saved.done():
                self._saved.set_result(None)


def _advice(error: sqlite3.Error) -> str:
    """What to do about a file that cannot be opened."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return "; choose another file, or move this one away"
    if "locked" in str(error):
        return "; is another cluster running on it?"
    return ""
