"""Reading plans, overriding them, and asking what would be planned."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from penstock.base.enums import JobPhase, Policy, Role, Source, Stage
from penstock.base.targets import RoleTarget
from penstock.brain.control.metrics import BrainMetrics
from penstock.brain.control.optimizer import Decision
from penstock.brain.control.plan_subscribers import PlanSubscribers
from penstock.brain.control.planner import MOST_PLANS, Planner, applied_plans
from penstock.brain.errors import (
    IdempotencyConflictError,
    JobFinishedError,
    NoOverrideError,
    NoPlanError,
    PreconditionFailedError,
)
from penstock.brain.plan_check import check
from penstock.brain.plan_content import PlanContent, role_plan
from penstock.brain.planning import History, Limits, Plan
from penstock.brain.registration import Registration
from penstock.brain.store.audit import Audit
from penstock.brain.store.database import Database
from penstock.brain.store.idempotency import Idempotency
from penstock.brain.store.jobs import Jobs
from penstock.brain.store.plans import Plans
from penstock.brain.store.runs import Runs
from penstock.brain.store.samples import Samples
from penstock.brain.store.tables import JobRow, PlanRow, RunRow

logger = logging.getLogger(__name__)
_MOST_SPEEDS: Final = 500
_MOST_UNWRITTEN: Final = 100
_MOST_NAMES: Final = 3
_HEARTBEAT_SECONDS: Final = 15.0


class ClusterRefusedError(Exception):
    """The cluster will not take a Scale, for a reason that trying again does not change."""


class ClusterUnavailableError(Exception):
    """The cluster cannot be reached now."""


class ScaleNameTakenError(Exception):
    """Another Scale has the name: what was asked for is not in force."""


class ScaleWriter(Protocol):
    """Writes the Scales of overrides into the cluster, with credentials of its own."""

    def name(self, job: JobRow, number: int) -> str:
        """The name of the Scale that carries out plan `number` of the job."""

    def another_name(self, job: JobRow, number: int) -> str:
        """A name that nobody could have taken before; it sorts as the first one does."""

    async def write(self, job: JobRow, plan: PlanRow) -> None:
        """Create the Scale; the same one that exists already is fine.

        Raises:
            ScaleNameTakenError: Another Scale has its name.
        """

    async def delete(self, job: JobRow, name: str) -> None:
        """Delete a Scale; one that is gone already is fine."""


@dataclass(frozen=True, slots=True)
class CurrentPlan:
    """The plan in force and the job's revision, which any change of its plans increases."""

    row: PlanRow
    revision: int


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """What happened after a plan was made."""

    settled_seconds: float | None
    steps_per_second: float | None


@dataclass(frozen=True, slots=True)
class PlanDetail:
    """A plan with what came of it and what shadows would have done instead."""

    row: PlanRow
    outcome: PlanOutcome
    shadows: Sequence[RunRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideRequest:
    """A person's targets for a job."""

    policy: Policy
    roles: Mapping[Role, RoleTarget]
    reason: str
    message: str
    author: str
    revision: int | None = None
    """Only while the job's plans are as they were at this revision."""
    idempotency_key: str | None = None


class PlanService:
    """The plans of one Brain."""

    def __init__(
        self,
        database: Database,
        planner: Planner,
        watchers: PlanSubscribers,
        clock: Callable[[], float],
        metrics: BrainMetrics,
        scales: ScaleWriter | None = None,
    ) -> None:
        self._metrics = metrics
        self._database = database
        self._planner = planner
        self._watchers = watchers
        self._clock = clock
        self._scales = scales
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End all streams."""
        self._stopped.set()
        self._watchers.wake_all()

    async def current(self, uid: str) -> CurrentPlan:
        """The plan in force.

        Raises:
            JobNotFoundError: No job has this uid.
            NoPlanError: The job has no plan in force.
        """
        async with self._database.read() as session:
            job = await Jobs(self._database, session).get(uid)
            row = await Plans(session).current(uid)
        if row is None:
            raise NoPlanError(job.message or f"job {uid} has no plan: it runs as its spec says")
        return CurrentPlan(row, job.revision)

    async def page(self, uid: str, *, after: int, limit: int) -> Sequence[PlanRow]:
        """Plans in the order in which they were made.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        async with self._database.read() as session:
            await Jobs(self._database, session).get(uid)
            return await Plans(session).page(uid, after=after, limit=limit)

    async def detail(self, uid: str, number: int) -> PlanDetail:
        """One plan with what came of it.

        Raises:
            JobNotFoundError: No job has this uid.
            PlanNotFoundError: The job has no plan of this id.
        """
        async with self._database.read() as session:
            await Jobs(self._database, session).get(uid)
            plans = Plans(session)
            row = await plans.get(uid, number)
            outcome = await self._outcome(session, row)
            shadows = await Runs(session).shadows(uid, number)
        return PlanDetail(row, outcome, shadows)

    async def runs(self, uid: str, *, before: int | None, limit: int) -> Sequence[RunRow]:
        """Algorithms that were asked, newest first.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        async with self._database.read() as session:
            await Jobs(self._database, session).get(uid)
            return await Runs(session).page(uid, before=before, limit=limit)

    async def count(self, uid: str) -> int:
        """How many plans the job has had.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        async with self._database.read() as session:
            return (await Jobs(self._database, session).get(uid)).plan_count

    async def propose(
        self,
        uid: str,
        *,
        algorithm: str | None,
        stage: Stage | None,
        limits: Callable[[Limits], Limits],
    ) -> tuple[Decision, PlanContent | None]:
        """What would be planned; changes nothing.

        Raises:
            JobNotFoundError: No job has this uid.
            UnknownAlgorithmError: No plugin has this name.
        """
        return await self._planner.propose(uid, algorithm=algorithm, stage=stage, limits=limits)

    async def override(self, uid: str, request: OverrideRequest) -> CurrentPlan:
        """Put a person's targets in force, and write them into the cluster where there is one.

        Raises:
            JobNotFoundError: No job has this uid.
            JobFinishedError: The job has ended and takes nothing more.
            PlanRefusedError: The job's spec or limits do not allow it.
            PreconditionFailedError: The plan in force is not the one that the caller has read.
            IdempotencyConflictError: The key was used for something else.
        """
        now = self._clock()
        scope, digest = f"{request.author}:{uid}", _digest(request)
        # Before the transaction: whoever has one of few connections must not wait for another.
        largest_node = await self._planner.largest_node()
        async with self._database.write() as session:
            jobs, plans = Jobs(self._database, session), Plans(session)
            job = await jobs.get(uid)
            if request.idempotency_key is not None:
                known = await Idempotency(session).get(scope, request.idempotency_key)
                if known is not None:
                    if known.digest != digest:
                        raise IdempotencyConflictError(
                            f"Idempotency-Key = {request.idempotency_key!r}: was used for another "
                            "override; take a new one"
                        )
                    return CurrentPlan(await plans.get(uid, known.plan), job.revision)
            if JobPhase(job.phase).finished:
                raise JobFinishedError(f"job {uid} has ended ({job.phase})")
            if request.revision is not None and request.revision != job.revision:
                raise _moved_on(job, request.revision)
            await self._check(session, job, request, now, largest_node)
            pin = request.policy is Policy.PIN
            taken = await jobs.next_plan(uid, revision=request.revision, pin=pin)
            if taken is None:  # another Brain was faster than the comparison above
                raise _moved_on(job, request.revision)
            number, revision = taken
            row = PlanRow(
                job_uid=uid,
                number=number,
                created_seconds=now,
                source=Source.USER.value,
                policy=request.policy.value,
                reason=request.reason,
                message=request.message,
                author=request.author[:253],
                content=PlanContent(roles=request.roles).dump(),
                scale=None if self._scales is None else self._scales.name(job, number),
            )
            plans.add(row)
            if request.idempotency_key is not None:
                Idempotency(session).add(
                    scope, request.idempotency_key, digest, plan=number, now=now
                )
            Audit(session).add(
                time_seconds=now,
                actor=request.author,
                action="pin" if pin else "override",
                job_uid=uid,
                subject=f"plan {number}",
                detail={"roles": row.content, "message": request.message},
            )
        self._metrics.overrides.labels(request.policy.value).inc()
        if self._scales is not None:
            row = await self._write_scale(self._scales, job, row)
        self._watchers.wake(uid)
        return CurrentPlan(row, revision)

    async def lift(self, uid: str, author: str) -> CurrentPlan | None:
        """Return the job to the Brain: what it planned last comes into force again.

        None where it never planned.

        Raises:
            JobNotFoundError: No job has this uid.
            NoOverrideError: No override stands that could be lifted.
            ClusterUnavailableError: The pin cannot be deleted from the cluster.
        """
        async with self._database.read() as session:
            jobs, plans = Jobs(self._database, session), Plans(session)
            job = await jobs.get(uid)
            current = await plans.current(uid)
            pinned = None if job.pinned_plan is None else await plans.get(uid, job.pinned_plan)
        override = pinned or (
            current if current is not None and current.source == Source.USER.value else None
        )
        if override is None:
            raise NoOverrideError(f"job {uid} has no override in force")
        if self._scales is not None and override.scale is not None:
            await self._scales.delete(job, override.scale)
        now = self._clock()
        async with self._database.write() as session:
            jobs, plans = Jobs(self._database, session), Plans(session)
            job = await jobs.get(uid)
            content = await _underneath(plans, uid, override)
            if content is None:
                await jobs.unpin(uid, current_plan=None)
                returned = None
            else:
                taken = await jobs.next_plan(uid)
                assert taken is not None  # without a revision, the number is always given
                number, _ = taken
                await jobs.unpin(uid, current_plan=number)
                returned = PlanRow(
                    job_uid=uid,
                    number=number,
                    created_seconds=now,
                    source=Source.BRAIN.value,
                    policy=Policy.APPLY.value,
                    reason="OverrideLifted",
                    message=f"override {override.number} was lifted by {author}"[:1024],
                    author=author[:253],
                    content=content.dump(),
                )
                plans.add(returned)
            Audit(session).add(
                time_seconds=now,
                actor=author,
                action="lift-override",
                job_uid=uid,
                subject=f"plan {override.number}",
            )
            revision = (await jobs.get(uid)).revision
        self._watchers.wake(uid)
        return None if returned is None else CurrentPlan(returned, revision)

    async def watch(self, uid: str, after: int) -> AsyncGenerator[PlanRow | None]:
        """Plans as they come into force, from the one after number `after`; None now and then.

        Ends when the job has ended or the Brain stops.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        with self._watchers.subscribed(uid) as changed:
            while True:
                changed.clear()
                async with self._database.read() as session:
                    job = await Jobs(self._database, session).get(uid)
                    rows = await Plans(session).in_force_after(uid, after)
                for row in rows:
                    after = row.number
                    yield row
                if rows:
                    continue
                if JobPhase(job.phase).finished or self._stopped.is_set():
                    return
                try:
                    async with asyncio.timeout(_HEARTBEAT_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    yield None

    async def notice_changes(self) -> None:
        """See what another Brain has changed of the jobs that are watched here."""
        uids = self._watchers.jobs()
        if uids:
            async with self._database.read() as session:
                self._watchers.notice(await Jobs(self._database, session).revisions(uids))

    async def write_scales(self) -> None:
        """Write the Scales of overrides that could not be written before."""
        if self._scales is None:
            return
        async with self._database.read() as session:
            rows = await Plans(session).unwritten(_MOST_UNWRITTEN)
            jobs = [await Jobs(self._database, session).get(row.job_uid) for row in rows]
        for job, row in zip(jobs, rows, strict=True):
            await self._write_scale(self._scales, job, row)
            if row.scale is None:
                self._watchers.wake(job.uid)

    async def _check(
        self,
        session: AsyncSession,
        job: JobRow,
        request: OverrideRequest,
        now: float,
        largest_node: int | None,
    ) -> None:
        registration = Registration.parse(job.description)
        rows = await Plans(session).newest_in_force(job.uid, MOST_PLANS)
        plan = Plan(
            stage=Stage.ADJUST,
            algorithm="override",
            roles={role: role_plan(target) for role, target in request.roles.items()},
            reason=request.reason,
            message=request.message or "override",
        )
        history = History(now_seconds=now, plans=applied_plans(list(rows)))
        limits = self._planner.limits_of(registration, largest_node)
        check(plan, registration.description, limits, history)

    async def _write_scale(self, scales: ScaleWriter, job: JobRow, row: PlanRow) -> PlanRow:
        try:
            await self._write_under_free_name(scales, job, row)
        except ClusterRefusedError as error:
            # The plan is in force all the same: the trainer carries it out like any other.
            logger.warning("override %s of job %s: no Scale: %s", row.number, job.uid, error)
            row.scale = None
        except ClusterUnavailableError as error:
            logger.warning("override %s of job %s: %s; trying again", row.number, job.uid, error)
            return row
        else:
            row.scale_written = True
        async with self._database.write() as session:
            await Plans(session).written(job.uid, row.number, row.scale, written=row.scale_written)
        return row

    async def _write_under_free_name(self, scales: ScaleWriter, job: JobRow, row: PlanRow) -> None:
        for _ in range(_MOST_NAMES):
            try:
                await scales.write(job, row)
            except ScaleNameTakenError as error:
                logger.warning("override %s of job %s: %s", row.number, job.uid, error)
            else:
                return
            # Stored before it is used: whoever tries again after a crash finds its own Scale.
            row.scale = scales.another_name(job, row.number)
            async with self._database.write() as session:
                await Plans(session).written(job.uid, row.number, row.scale, written=False)
        raise ClusterUnavailableError(f"{_MOST_NAMES} names were taken")

    async def _outcome(self, session: AsyncSession, row: PlanRow) -> PlanOutcome:
        samples = Samples(self._database, session)
        following = await Plans(session).in_force_after(row.job_uid, row.number, 1)
        until = following[0].created_seconds if following else self._clock()
        if row.settled_seconds is None:
            return PlanOutcome(None, None)
        speeds = await samples.speeds(row.job_uid, row.settled_seconds, until, _MOST_SPEEDS)
        return PlanOutcome(row.settled_seconds, median(speeds) if speeds else None)


async def _underneath(plans: Plans, uid: str, override: PlanRow) -> PlanContent | None:
    """What the Brain said last of the roles that the override held; None where nothing."""
    held = set(PlanContent.model_validate_json(override.content).roles)
    roles: dict[Role, RoleTarget] = {}
    for row in await plans.newest_of_the_brain(uid, MOST_PLANS):
        for role, target in PlanContent.model_validate_json(row.content).roles.items():
            if role in held:
                said = target.model_dump(exclude_none=True)
                before = roles[role].model_dump(exclude_none=True) if role in roles else {}
                roles[role] = RoleTarget.model_validate({**before, **said})
    return PlanContent(roles=roles) if roles else None


def _moved_on(job: JobRow, revision: int | None) -> PreconditionFailedError:
    return PreconditionFailedError(
        f"the plans of job {job.uid} have changed since revision {revision}: "
        "read plans/current and decide again"
    )


def _digest(request: OverrideRequest) -> str:
    said = PlanContent(roles=request.roles).dump()
    text = f"{request.policy}\0{said}\0{request.reason}\0{request.message}\0{request.revision}"
    return hashlib.sha256(text.encode()).hexdigest()
