"""Connections to SQLite (WAL) or PostgreSQL, and the ways to read and to write.

`Database.read` and `Database.read_pages` write nothing; `Database.write` commits when its block
ends and rolls back when it raises. Whoever reads on SQLite sees one state; on PostgreSQL each
statement sees what is committed by then, as in any transaction of PostgreSQL's default isolation,
so that `read` needs no transaction there, nor the two messages that begin and end one. On SQLite a
writer takes the lock before it reads (BEGIN IMMEDIATE), since one that upgrades later can fail at
any moment; writers of one process queue in the event loop rather than in SQLite's busy loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

_WRITE: Final = "penstock_write"
_USED: Final = "penstock_used"
_BUSY_MILLISECONDS: Final = 10_000
UNUSED_SECONDS: Final = 1.0
"""A connection that nobody has used for so long is tried before it is used again."""


class DatabaseError(Exception):
    """The database cannot be used; the text says why and what to do."""


class Database:
    """One database; `close` it at the end."""

    def __init__(self, url: str, *, pool_size: int = 16) -> None:
        """`url` as for SQLAlchemy: ``sqlite+aiosqlite:///FILE`` or ``postgresql+asyncpg://...``.

        Raises:
            DatabaseError: Any other trouble with it.
        """
        try:
            parsed = make_url(url)
        except ArgumentError as error:
            raise DatabaseError(
                f"--database={url!r} is not a database URL: expected sqlite+aiosqlite:///FILE or "
                "postgresql+asyncpg://USER@HOST/NAME"
            ) from error
        if parsed.drivername not in {"sqlite+aiosqlite", "postgresql+asyncpg"}:
            raise DatabaseError(
                f"--database names {parsed.drivername!r}: expected sqlite+aiosqlite or "
                "postgresql+asyncpg"
            )
        self.is_sqlite = parsed.drivername == "sqlite+aiosqlite"
        if self.is_sqlite:
            if not parsed.database or parsed.database == ":memory:":
                raise DatabaseError("--database=sqlite needs a file: sqlite+aiosqlite:///FILE")
            folder = Path(parsed.database).absolute().parent
            if not folder.is_dir():
                raise DatabaseError(f"--database: the folder {folder} does not exist")
        self.url = parsed
        self._engine: AsyncEngine = create_async_engine(
            parsed,
            pool_size=pool_size,
            # One that exceeds the pool would be opened and closed each time: a thread, a file and
            # six statements. It waits instead.
            max_overflow=0,
            pool_timeout=30,
            connect_args={"timeout": 10} if not self.is_sqlite else {},
        )
        if self.is_sqlite:
            event.listen(self._engine.sync_engine, "connect", _prepare_sqlite)
            event.listen(self._engine.sync_engine, "connect", self._remember_file)
            event.listen(self._engine.sync_engine, "begin", _begin_sqlite)
            self._reading = self._engine
        else:
            event.listen(self._engine.sync_engine, "checkin", _note_use)
            event.listen(self._engine.sync_engine, "checkout", self._try_connection)
            self._reading = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self._writing = self._engine.execution_options(**{_WRITE: True})
        self._lock = asyncio.Lock()
        self._file: tuple[int, int] | None = None

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """For statements that only read."""
        async with AsyncSession(self._reading, expire_on_commit=False, autoflush=False) as session:
            yield session

    @asynccontextmanager
    async def read_pages(self) -> AsyncIterator[AsyncSession]:
        """A transaction that only reads, for what is streamed page by page: a cursor needs one."""
        async with AsyncSession(self._engine, expire_on_commit=False, autoflush=False) as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        """A transaction that is committed at the end of the block."""
        async with (
            self._lock if self.is_sqlite else nullcontext(),
            AsyncSession(self._writing, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def check_file(self) -> None:
        """Whether the file of SQLite that is written to is the one at its path.

        One that was deleted or replaced meanwhile is written to as before, and all of it is lost
        when the process ends.

        Raises:
            DatabaseError: It is not.
        """
        if self._file is not None and self._file != self._file_at_path():
            raise DatabaseError(
                f"the file {self.url.database} was deleted or replaced while it was open: "
                "what it writes now is lost when it ends; restart it"
            )

    def _try_connection(self, connection: Any, record: Any, _proxy: Any) -> None:
        """Find out whether the server still knows a connection that nobody has used for long.

        One in steady use says so itself; to ask before each use cost a twentieth of the Brain.
        """
        used = record.info.get(_USED)
        if used is None or time.monotonic() - used < UNUSED_SECONDS:
            return
        dialect = self._engine.dialect
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            if dialect.is_disconnect(error, connection, None):
                raise InvalidatePoolError from error  # the pool opens others
            raise

    def _remember_file(self, _connection: Any, _record: Any) -> None:
        if self._file is None:
            self._file = self._file_at_path()

    def _file_at_path(self) -> tuple[int, int] | None:
        try:
            found = Path(str(self.url.database)).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def insert(self, table: type[Any]) -> sqlite.Insert | postgresql.Insert:
        """An INSERT of this dialect, which knows ON CONFLICT."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    @property
    def engine(self) -> AsyncEngine:
        """For migrations."""
        return self._engine


def _note_use(_connection: Any, record: Any) -> None:
    record.info[_USED] = time.monotonic()


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # SQLAlchemy's own BEGIN is replaced below; without this the driver would add another.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {_BUSY_MILLISECONDS}",
        "journal_mode = WAL",
        # Survives a crash of the process; a power cut may lose the last commits, never tear one.
        "synchronous = NORMAL",
        "foreign_keys = ON",
        "journal_size_limit = 67108864",
        "cache_size = -8192",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
