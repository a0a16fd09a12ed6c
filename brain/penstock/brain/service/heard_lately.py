"""What this Brain heard of each job lately, for gauges.

Of several Brains each shows the jobs whose reports came to it. A job that falls silent, or ends, is
not shown for long: a figure that stays as it was looks like one that is measured.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs

SHOWN_SECONDS: Final = 60.0
T = TypeVar("T")


class HeardLately(Generic[T]):
    """The newest of each job."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._newest: dict[str, tuple[float, T]] = {}

    def note(self, uid: str, value: T, now: float) -> None:
        """A job's newest."""
        self._newest[uid] = (now, value)

    def drop(self, uid: str) -> None:
        """Nothing is known of this job any more."""
        self._newest.pop(uid, None)

    async def recent(self, now: float) -> list[tuple[str, str, T]]:
        """Of each active job its namespace, its name, and what was heard; the rest is forgotten."""
        oldest = now - SHOWN_SECONDS
        self._newest = {uid: one for uid, one in self._newest.items() if one[0] >= oldest}
        heard = {uid: value for uid, (_, value) in self._newest.items()}
        if not heard:
            return []
        async with self._database.read() as session:
            names = await Jobs(self._database, session).active_names(list(heard))
        return [(namespace, name, heard[uid]) for uid, (namespace, name) in names.items()]
