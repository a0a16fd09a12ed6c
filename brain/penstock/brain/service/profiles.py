"""Profiles of jobs' input: kept, asked what would change them, and decided about.

A job's own measurement counts before everything else. One that has none yet is planned with the
newest of its kind (same namespace, model, dataset and code), and when its own comes, by how much
the other was off is noted there: figures that are never checked go stale (FastFlow, section 5.2,
keeps them for ever).
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.base.enums import JobPhase, Role
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.errors import JobFinishedError, NoProfileError
from penstock.brain.registration import Registration
from penstock.brain.service.input_gauges import InputGauges
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.profiles import Profiles, kind_of, read
from penstock.brain.store.tables import JobRow, ProfileRow
from penstock.throughput.decision.in_job import JobDecision, decide_in_job
from penstock.throughput.decision.what_if import Point, what_if
from penstock.throughput.errors import ProfileError
from penstock.throughput.loop.prediction import predict
from penstock.throughput.profiles.profile import Profile

MOST_DATA_WORKERS: Final = 64
"""Of a job that does not say how many it may have."""
_REMEMBERED: Final = 2000
KEYS: Final = ("pipeline", "model", "machine")
_MOST_NAME: Final = 253
_MOST_KEY: Final = 128


@dataclass(frozen=True, slots=True)
class Stored:
    """A profile and its row."""

    row: ProfileRow
    profile: Profile


@dataclass(frozen=True, slots=True)
class InputState:
    """A job's input as it was last measured, and what should be done about it."""

    stored: Stored
    decision: JobDecision


class ProfileService:
    """The profiles of one Brain."""

    def __init__(
        self, database: Database, clock: Callable[[], float], metrics: BrainMetrics
    ) -> None:
        self._database = database
        self._clock = clock
        self._gauges = InputGauges(database, metrics)
        self._decided: OrderedDict[tuple[int, float, int], JobDecision] = OrderedDict()

    async def put(self, uid: str, source: str, profile: Profile) -> None:
        """Store what was measured just now.

        Raises:
            JobNotFoundError: No job has this uid.
            JobFinishedError: The job has ended, and measures nothing more.
        """
        now = self._clock()
        checked = await self._check_other(uid, profile)
        async with self._database.write() as session:
            row = await Jobs(self._database, session).get(uid)
            if JobPhase(row.phase).finished:
                raise JobFinishedError(f"job {uid} has ended ({row.phase}): no profile is taken")
            profiles = Profiles(self._database, session)
            kind = kind_of(row)
            if checked is not None and not await profiles.has(uid):
                await profiles.note_use(*checked)
            await profiles.put(
                {
                    "job_uid": uid,
                    "source": source,
                    "program": profile.program[:_MOST_NAME],
                    **{name: str(profile.keys.get(name, ""))[:_MOST_KEY] for name in KEYS},
                    "signature": kind,
                    "content": json.dumps(profile.to_json(), allow_nan=False),
                    "measured_seconds": now,
                }
            )
        self._gauges.note(uid, profile, now)

    async def _check_other(self, uid: str, own: Profile) -> tuple[int, float] | None:
        """The row of the profile that the job began with, and by how much that was off.

        The model takes a moment, in which nobody else is to wait for the database.
        """
        async with self._database.read() as session:
            row = await Jobs(self._database, session).get(uid)
            profiles = Profiles(self._database, session)
            kind = kind_of(row)
            if not kind or await profiles.has(uid):
                return None
            other = await profiles.of_kind(kind, but=uid)
        if other is None or other.id is None or (known := read(other)) is None:
            return None
        error = await asyncio.to_thread(_error_of, known, own)
        return None if error is None else (other.id, error)

    async def observe(self) -> None:
        """Bring the gauges of the jobs' input up to date."""
        await self._gauges.show(self._clock())

    async def get(self, uid: str) -> Stored:
        """The newest of a job's own.

        Raises:
            JobNotFoundError: No job has this uid.
            NoProfileError: nothing was measured of it yet.
        """
        return (await self._get(uid))[1]

    async def _get(self, uid: str) -> tuple[JobRow, Stored]:
        async with self._database.read() as session:
            job = await Jobs(self._database, session).get(uid)
            found = await Profiles(self._database, session).of_job(uid)
        if found is None:
            raise NoProfileError(
                f"nothing has been measured of the input of job {uid}: it has to take batches "
                "from a loader of its own for half a minute"
            )
        return job, Stored(*found)

    async def page(
        self, filters: Mapping[str, str | None], before: int | None, limit: int
    ) -> Sequence[ProfileRow]:
        """Profiles with these keys, newest first."""
        async with self._database.read() as session:
            return await Profiles(self._database, session).page(filters, before, limit)

    async def what_if(
        self, uid: str, changes: Sequence[Mapping[str, Any]]
    ) -> tuple[Profile, list[Point]]:
        """What one training process would do with other resources.

        Raises:
            JobNotFoundError: No job has this uid.
            NoProfileError: nothing was measured of it yet.
            ProfileError: a configuration that nobody can have.
        """
        profile = (await self.get(uid)).profile
        asked = [replace(profile.resources, **change) for change in changes]
        return profile, await asyncio.to_thread(what_if, profile, asked)

    async def state(self, uid: str) -> InputState:
        """The job's input now, and what should be done about it.

        Raises:
            JobNotFoundError: No job has this uid.
            NoProfileError: nothing was measured of it yet.
        """
        job, stored = await self._get(uid)
        spec = Registration.parse(job.description).description.role(Role.DATA_WORKER)
        most = spec.most(MOST_DATA_WORKERS)
        key = (stored.row.id or 0, stored.row.measured_seconds, most)
        decision = self._decided.get(key)
        if decision is None:
            decision = await asyncio.to_thread(decide_in_job, stored.profile, most)
            self._decided[key] = decision
            while len(self._decided) > _REMEMBERED:
                self._decided.popitem(last=False)
        return InputState(stored, decision)


def _error_of(known: Profile, own: Profile) -> float | None:
    """By which share of its rate a profile was off for another job; None: it has no answer."""
    per_batch = own.batch_size / known.batch_size
    try:
        found = predict(known, own.resources).rate * per_batch
    except ProfileError:
        return None
    return found / own.rate.value - 1
