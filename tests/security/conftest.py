from __future__ import annotations

from tests.brain.databases import sqlite_url

__all__ = ["sqlite_url"]
