"""Databases for tests: SQLite in a folder, and a real PostgreSQL on loopback where it is installed.

The PostgreSQL server is started once for a test session, with durability switched off; every test
gets a database of its own in it.
"""

from __future__ import annotations

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


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path}/brain.sqlite"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.new_database()
    try:
        yield url
    finally:
        server.drop(url)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """An empty SQLite database."""
    return f"sqlite+aiosqlite:///{tmp_path}/brain.sqlite"


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """An empty PostgreSQL database."""
    url = postgres.new_database()
    try:
        yield url
    finally:
        postgres.drop(url)
