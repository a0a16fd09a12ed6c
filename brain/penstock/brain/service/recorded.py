"""What trained in a time range: when each job came, with which pods, and for how long.

Read from the roll-ups, to the minute. A job's pods are the mean of what it had while it trained, in
whole pods. Of a job that sent no sample it is not known what it wanted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.base.enums import Role
from penstock.brain.errors import HistoryError
from penstock.brain.model.rollups import load_roles
from penstock.brain.model.spent import GIB, load
from penstock.brain.service.costs import MOST_ROWS
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.rollups import TrainedRow, first_minutes, trained_pages

MOST_JOBS: Final = 5000
"""That are told at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRole:
    """The pods of one role, and what each of them had."""

    count: int
    milli_cpu: int
    memory_bytes: int
    accelerators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedJob:
    """One job.

    Attributes:
        registered_seconds: when its trainer was there.
        began_seconds: when it first trained, to the minute; in the range that was asked for.
        train_seconds: for which it trained in that range.
        ended: whether it ended before the range did.
    """

    uid: str
    registered_seconds: float
    began_seconds: float
    train_seconds: float
    ended: bool
    roles: Mapping[str, TrainedRole]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The jobs that trained, by when they came, and how many of those that came did not."""

    jobs: tuple[TrainedJob, ...]
    silent: int


@dataclass(slots=True)
class _RoleSums:
    """What is added up of one role: what its pods were given, and for how long any was there."""

    pod_seconds: float = 0.0
    core_seconds: float = 0.0
    gib_seconds: float = 0.0
    accelerator_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class _Sums:
    """What is added up of one job."""

    registered: float
    finished: float | None
    began: float = math.inf
    roles: dict[str, _RoleSums] = field(default_factory=dict)


class RecordedService:
    """The past jobs of one Brain."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, start: float, end: float) -> Recorded:
        """What trained between two moments.

        Raises:
            HistoryError: There is more than is told at once.
        """
        sums: dict[str, _Sums] = {}
        rows = 0
        async with self._database.read_pages() as session:
            registered = await Jobs(self._database, session).registered(start, end)
            first = await first_minutes(session, start, end)
            async for page in trained_pages(session, start, end):
                rows += len(page)
                await asyncio.to_thread(_add, sums, page)
                if rows > MOST_ROWS or len(sums) > MOST_JOBS:
                    raise HistoryError(
                        f"there are over {len(sums):,} jobs with {rows:,} records in this time, "
                        f"and at most {MOST_JOBS:,} jobs and {MOST_ROWS:,} records are replayed: "
                        "ask for fewer hours"
                    )
        for uid, began in first.items():
            if uid in sums:  # ten minutes do not say when in them
                sums[uid].began = began
        jobs = [_job(uid, one, end) for uid, one in sums.items()]
        jobs.sort(key=lambda job: (job.registered_seconds, job.uid))
        trained = sum(job.registered_seconds >= start for job in jobs)
        return Recorded(jobs=tuple(jobs), silent=max(0, registered - trained))


def _add(sums: dict[str, _Sums], page: Iterable[TrainedRow]) -> None:
    for row in page:
        own = sums.setdefault(row.uid, _Sums(row.registered_seconds, row.finished_seconds))
        own.began = min(own.began, row.start_seconds)
        uses = load_roles(row.roles)
        for name, given in load(row.spent).items():
            use = uses.get(name)
            if use is None or use.replicas <= 0:
                continue
            role = own.roles.setdefault(name, _RoleSums())
            role.pod_seconds += given.pod_seconds
            role.core_seconds += given.core_seconds
            role.gib_seconds += given.gib_seconds
            role.accelerator_seconds += given.accelerator_seconds
            role.seconds += given.pod_seconds / use.replicas


def _job(uid: str, sums: _Sums, end: float) -> TrainedJob:
    roles = sums.roles
    longest = max((role.seconds for role in roles.values()), default=0.0)
    workers = roles.get(Role.WORKER.value)
    trained = max(longest if workers is None else workers.seconds, 1.0)
    return TrainedJob(
        uid=uid,
        registered_seconds=sums.registered,
        began_seconds=max(sums.began, sums.registered),
        train_seconds=trained,
        ended=sums.finished is not None and sums.finished < end,
        roles={
            name: role
            for name, given in sorted(roles.items())
            if (role := _role(given, trained)) is not None
        },
    )


def _role(given: _RoleSums, seconds: float) -> TrainedRole | None:
    """Pods that, over the whole training, have what these had; None: less than half of one."""
    count = round(given.pod_seconds / seconds)
    if count < 1:
        return None
    return TrainedRole(
        count=count,
        milli_cpu=round(1000 * given.core_seconds / given.pod_seconds),
        memory_bytes=round(GIB * given.gib_seconds / given.pod_seconds),
        accelerators=round(given.accelerator_seconds / given.pod_seconds),
    )
