from __future__ import annotations

from tests.brain.databases import sqlite_url
from tests.data.tensorflow.conftest import tf

__all__ = ["sqlite_url", "tf"]
