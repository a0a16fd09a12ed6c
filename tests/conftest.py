"""Databases, for all tests: a PostgreSQL server is started once in a session."""

from __future__ import annotations

from tests.brain.databases import (
    database_url,
    empty_database_url,
    migrated_postgres,
    migrated_sqlite,
    postgres,
    postgres_url,
    sqlite_url,
)

__all__ = [
    "database_url",
    "empty_database_url",
    "migrated_postgres",
    "migrated_sqlite",
    "postgres",
    "postgres_url",
    "sqlite_url",
]
