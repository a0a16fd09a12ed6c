from __future__ import annotations

from tests.brain.databases import database_url, postgres, postgres_url, sqlite_url
from tests.client.servers import either

__all__ = ["database_url", "either", "postgres", "postgres_url", "sqlite_url"]
