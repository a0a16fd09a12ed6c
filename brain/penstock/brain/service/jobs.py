"""Registering jobs, reading them, and noting how they ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from penstock.base.enums import EventKind, JobPhase, Optimize, Role, Trigger
from penstock.brain.control.optimizer import Decision
from penstock.brain.control.plan_subscribers import PlanSubscribers
from penstock.brain.control.planner import Planner
from penstock.brain.errors import JobConflictError, JobFinishedError
from penstock.brain.executor import Outcome
from penstock.brain.model.usage import summarize
from penstock.brain.planning import JobDescription, RoleUsage
from penstock.brain.registration import Registration
from penstock.brain.store.database import Database
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.past_jobs import PastJobs
from penstock.brain.store.rollups import Rollups
from penstock.brain.store.samples import Samples
from penstock.brain.store.tables import JobRow, UsageRow

logger = logging.getLogger(__name__)
_MOST_SAMPLES: Final = 2000
_LOOK_BACK_SECONDS: Final = 7 * 86_400.0
"""What a job used before the last week does not count."""


class JobService:
    """The jobs of one Brain."""

    def __init__(
        self,
        database: Database,
        planner: Planner,
        watchers: PlanSubscribers,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._planner = planner
        self._watchers = watchers
        self._clock = clock

    async def register(self, registration: Registration) -> JobRow:
        """Store the job and make its first plan, unless it has one.

        When this returns, the plan exists or the job's message says why there is none. A job that
        has ended is returned as it is.

        Raises:
            JobConflictError: The uid belongs to a job of another name, namespace or strategy.
        """
        job = registration.description
        async with self._database.write() as session:
            jobs = Jobs(self._database, session)
            present = await jobs.find(job.uid)
            if present is not None:
                _check_same(present, job)
                if JobPhase(present.phase).finished:
                    return present
            await jobs.register(registration, self._clock())
            row = await jobs.get(job.uid)
        if row.current_plan is None and job.optimize is not Optimize.MANUAL:
            decision = await self._planner.plan(job.uid, Trigger.CREATED)
            row = await self._explained(job.uid, decision)
        return row

    async def has(self, uid: str) -> bool:
        """Whether a job of that uid is registered."""
        async with self._database.read() as session:
            return await Jobs(self._database, session).find(uid) is not None

    async def get(self, uid: str) -> JobRow:
        """One job.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        async with self._database.read() as session:
            return await Jobs(self._database, session).get(uid)

    async def page(
        self,
        *,
        namespaces: Sequence[str] | None,
        namespace: str | None,
        phase: JobPhase | None,
        user: str | None,
        model: str | None,
        since: float | None,
        before: tuple[float, str] | None,
        limit: int,
    ) -> Sequence[JobRow]:
        """Jobs, newest first; `namespaces` are those that the caller may see, None for all."""
        async with self._database.read() as session:
            return await Jobs(self._database, session).page(
                namespaces=namespaces,
                namespace=namespace,
                phase=phase,
                user=user,
                model=model,
                since=since,
                before=before,
                limit=limit,
            )

    async def counts(self) -> dict[str, int]:
        """How many jobs are in each phase."""
        async with self._database.read() as session:
            return await Jobs(self._database, session).count_by_phase()

    async def finish(self, uid: str, phase: JobPhase, message: str) -> JobRow:
        """Note how the job ended, and what it used. Saying the same again changes nothing.

        Raises:
            JobNotFoundError: No job has this uid.
            JobFinishedError: It ended otherwise.
        """
        async with self._database.read() as session:
            row = await Jobs(self._database, session).get(uid)
            packed = await Samples(self._database, session).packed(uid, _MOST_SAMPLES)
            oldest = await Samples(self._database, session).oldest(uid)
            minutes = await Rollups(self._database, session).minutes(
                uid, self._clock() - _LOOK_BACK_SECONDS, oldest or self._clock()
            )
            events = await Samples(self._database, session).events(uid, 0.0, _MOST_SAMPLES)
            speeds = await Samples(self._database, session).speeds(
                uid, 0.0, float("1e12"), _MOST_SAMPLES
            )
        if JobPhase(row.phase).finished:
            if row.phase == phase.value:
                return row
            raise JobFinishedError(f"job {uid} has ended already: {row.phase}")
        usages = await asyncio.to_thread(summarize, packed, minutes)
        died = {event.role for event in events if event.kind is EventKind.OUT_OF_MEMORY}
        speed = sorted(speeds)[len(speeds) // 2] if speeds else 0.0
        async with self._database.write() as session:
            jobs = Jobs(self._database, session)
            await jobs.finish(uid, phase, message, self._clock())
            await PastJobs(session).add(
                _usage_row(uid, role, usage, speed, role in died) for role, usage in usages.items()
            )
            row = await jobs.get(uid)
        self._watchers.wake(uid)
        return row

    async def _explained(self, uid: str, decision: Decision) -> JobRow:
        async with self._database.write() as session:
            jobs = Jobs(self._database, session)
            row = await jobs.get(uid)
            if row.current_plan is None:
                logger.warning("job %s has no first plan: %s", uid, why_none(decision))
                await jobs.explain(uid, why_none(decision))
                row = await jobs.get(uid)
            elif row.message:
                await jobs.explain(uid, "")
                row = await jobs.get(uid)
        return row


def why_none(decision: Decision) -> str:
    """Why a decision has no plan, for people."""
    failed = [
        f"{run.algorithm}: {run.outcome}: {run.detail}"
        for run in decision.runs
        if run.outcome is not Outcome.NO_PLAN
    ]
    asked = ", ".join(run.algorithm for run in decision.runs) or "none"
    reason = "; ".join(failed) or f"no algorithm had one (asked: {asked})"
    return f"no initial plan: {reason}"[:1024]


def _check_same(row: JobRow, job: JobDescription) -> None:
    for field, present, wanted in (
        ("name", row.name, job.name),
        ("namespace", row.namespace, job.namespace),
        ("strategy", row.strategy, job.strategy.value),
    ):
        if present != wanted:
            raise JobConflictError(
                f"{field} = {wanted!r}: uid {job.uid} is registered with {present!r}; "
                "a uid is never used for another job"
            )


def _usage_row(
    uid: str, role: Role, usage: RoleUsage, speed: float, out_of_memory: bool
) -> UsageRow:
    return UsageRow(
        job_uid=uid,
        role=role.value,
        replicas=usage.replicas,
        milli_cpu=usage.milli_cpu,
        hottest_milli_cpu=usage.hottest_milli_cpu,
        peak_memory_bytes=usage.peak_memory_bytes,
        total_memory_bytes=usage.total_memory_bytes,
        steps_per_second=speed,
        out_of_memory=out_of_memory,
    )
