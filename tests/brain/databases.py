"""Databases for tests: SQLite in a folder, and a real PostgreSQL on loopback where it is installed.

The PostgreSQL server is started once for a test session, with durability switched off; every test
gets a database of its own in it. Those that are not asked to be empty have the Brain's tables: all
migrations are applied once in a session, and what they made is copied.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.postgres import PostgresMissingError, PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for the session."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgres())
        except PostgresMissingError as error:
            pytest.skip(str(error))
        yield server


@pytest.fixture(scope="session")
def migrated_postgres(postgres: PostgresServer) -> str:
    """A PostgreSQL database with the Brain's tables, to which nobody is connected."""
    url = postgres.new_database()
    _migrate(url)
    return url


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a SQLite database with the Brain's tables, which nobody has open."""
    path = tmp_path_factory.mktemp("migrated") / "brain.sqlite"
    _migrate(_sqlite(path))
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A database of each kind, with the Brain's tables."""
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    found: str = request.getfixturevalue(name)
    return found


@pytest.fixture
def sqlite_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    """A SQLite database with the Brain's tables."""
    path = tmp_path / "brain.sqlite"
    shutil.copyfile(migrated_sqlite, path)
    return _sqlite(path)


@pytest.fixture
def postgres_url(postgres: PostgresServer, migrated_postgres: str) -> Iterator[str]:
    """A PostgreSQL database with the Brain's tables."""
    url = postgres.new_database(migrated_postgres)
    yield url
    postgres.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield _sqlite(tmp_path / "brain.sqlite")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.new_database()
    yield url
    server.drop(url)


def _sqlite(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


def _migrate(url: str) -> None:
    from penstock.brain.store.database import Database
    from penstock.brain.store.schema import upgrade

    async def work() -> None:
        database = Database(url)
        try:
            await upgrade(database)
        finally:
            await database.close()

    asyncio.run(work())
