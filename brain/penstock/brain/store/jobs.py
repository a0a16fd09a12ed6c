"""Every query on jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Float, Table, bindparam, case, func, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.base.enums import JobPhase
from penstock.brain.errors import JobNotFoundError
from penstock.brain.registration import Registration
from penstock.brain.store.database import Database
from penstock.brain.store.tables import JobRow, LeaseRow


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """What one batch says of its job; `at` is the moment of the newest sample, None without one."""

    uid: str
    now: float
    at: float | None = None
    step: int = 0
    steps_per_second: float = 0.0
    world_size: int = 0
    symptoms: str = ""
    dropped: int = 0
    out_of_memory: bool = False


class LiveJob(NamedTuple):
    """The few columns of an active job that are read every second, without its description."""

    uid: str
    optimize: str
    current_plan: int | None
    step: int
    sampled_seconds: float | None
    out_of_memory_seconds: float | None
    symptoms: str


JobState = tuple[JobPhase, int | None, str]
"""Phase, plan in force and warning."""


class Jobs:
    """The jobs, within one transaction."""

    def __init__(self, database: Database, session: AsyncSession) -> None:
        self._database = database
        self._session = session

    async def get(self, uid: str) -> JobRow:
        """One job.

        Raises:
            JobNotFoundError: No job has this uid.
        """
        row = await self.find(uid)
        if row is None:
            raise JobNotFoundError(uid)
        return row

    async def find(self, uid: str) -> JobRow | None:
        """One job, or None."""
        return await self._session.get(JobRow, uid, populate_existing=True)

    async def register(self, registration: Registration, now: float) -> bool:
        """Store a job, or what has changed of its description. True where it was new."""
        job = registration.description
        described = {
            "optimize": job.optimize.value,
            "model": job.signature.model,
            "dataset": job.signature.dataset,
            "user_name": job.signature.user,
            "code": job.signature.code,
            "description": registration.dump(),
        }
        fresh = {
            "uid": job.uid,
            "name": job.name,
            "namespace": job.namespace,
            "strategy": job.strategy.value,
            "phase": JobPhase.ACTIVE.value,
            "registered_seconds": now,
            "last_seen_seconds": now,
            **_COUNTERS,
            **described,
        }
        inserted = await self._session.scalar(
            self._database.insert(JobRow)
            .values(fresh)
            .on_conflict_do_nothing(index_elements=["uid"])
            .returning(col(JobRow.uid))
        )
        if inserted is not None:
            return True
        await self._session.execute(
            update(JobRow)
            .where(col(JobRow.uid) == job.uid)
            .values(last_seen_seconds=now, phase=_revived(), **described)
        )
        return False

    async def states(self, uids: Iterable[str]) -> dict[str, JobState]:
        """Phase, plan in force and warning of those of the jobs that exist."""
        rows = await self._session.execute(
            select(
                col(JobRow.uid),
                col(JobRow.phase),
                col(JobRow.current_plan),
                col(JobRow.warning),
            ).where(col(JobRow.uid).in_(list(uids)))
        )
        return {row[0]: (JobPhase(row[1]), row[2], row[3]) for row in rows}

    async def active_names(self, uids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Namespace and name of those of the jobs that have not ended."""
        found: dict[str, tuple[str, str]] = {}
        for start in range(0, len(uids), 500):
            rows = await self._session.execute(
                select(col(JobRow.uid), col(JobRow.namespace), col(JobRow.name)).where(
                    col(JobRow.uid).in_(uids[start : start + 500]),
                    col(JobRow.phase) == JobPhase.ACTIVE.value,
                )
            )
            found |= {row[0]: (row[1], row[2]) for row in rows}
        return found

    async def revisions(self, uids: Sequence[str]) -> dict[str, int]:
        """The revision of each of the jobs that exists."""
        found: dict[str, int] = {}
        for start in range(0, len(uids), 500):
            rows = await self._session.execute(
                select(col(JobRow.uid), col(JobRow.revision)).where(
                    col(JobRow.uid).in_(uids[start : start + 500])
                )
            )
            found |= {row[0]: row[1] for row in rows}
        return found

    async def progressed(self, progress: Sequence[JobProgress]) -> None:
        """Note what trainers have said of their jobs. A sample that is older than what is known
        changes nothing but the time of hearing."""
        if not progress:
            return
        at: Any = bindparam("b_at", type_=Float(53))
        newer = at.is_not(None) & or_(
            col(JobRow.sampled_seconds).is_(None), col(JobRow.sampled_seconds) <= at
        )

        def newest(column: Any, name: str) -> Any:
            return case((newer, bindparam(name, type_=column.type)), else_=column)

        died = bindparam("b_died", type_=Float(53))
        connection = await self._session.connection()
        await connection.execute(
            update(_TABLE)
            .where(_TABLE.c.uid == bindparam("b_uid"))
            .values(
                last_seen_seconds=bindparam("b_now"),
                phase=_revived(),
                step=newest(_TABLE.c.step, "b_step"),
                steps_per_second=newest(_TABLE.c.steps_per_second, "b_speed"),
                world_size=newest(_TABLE.c.world_size, "b_world"),
                symptoms=newest(_TABLE.c.symptoms, "b_symptoms"),
                sampled_seconds=newest(_TABLE.c.sampled_seconds, "b_at"),
                samples_dropped=_TABLE.c.samples_dropped + bindparam("b_dropped"),
                out_of_memory_seconds=func.coalesce(died, _TABLE.c.out_of_memory_seconds),
            ),
            [
                {
                    "b_uid": each.uid,
                    "b_now": each.now,
                    "b_at": each.at,
                    "b_step": each.step,
                    "b_speed": each.steps_per_second,
                    "b_world": each.world_size,
                    "b_symptoms": each.symptoms,
                    "b_dropped": each.dropped,
                    "b_died": each.now if each.out_of_memory else None,
                }
                for each in progress
            ],
        )

    async def heard(self, uid: str, now: float) -> None:
        """The trainer has called without samples."""
        await self._session.execute(
            update(JobRow)
            .where(col(JobRow.uid) == uid)
            .values(last_seen_seconds=now, phase=_revived())
        )

    async def finish(self, uid: str, phase: JobPhase, message: str, now: float) -> None:
        """The job has ended."""
        await self._session.execute(
            update(JobRow)
            .where(col(JobRow.uid) == uid)
            .values(
                phase=phase.value,
                message=message,
                finished_seconds=now,
                last_seen_seconds=now,
                revision=col(JobRow.revision) + 1,
            )
        )

    async def warn(self, uid: str, warning: str) -> None:
        """Say what a job's owner should know; empty: nothing any more."""
        await self._session.execute(
            update(JobRow).where(col(JobRow.uid) == uid).values(warning=warning[:1024])
        )

    async def explain(self, uid: str, message: str) -> None:
        """Why the job has no plan."""
        await self._session.execute(
            update(JobRow).where(col(JobRow.uid) == uid).values(message=message[:1024])
        )

    async def lose(self, silent_since: float) -> Sequence[str]:
        """Mark as Lost what has been silent since then; returns the uids."""
        found = await self._session.scalars(
            update(JobRow)
            .where(
                col(JobRow.phase) == JobPhase.ACTIVE.value,
                col(JobRow.last_seen_seconds) < silent_since,
            )
            .values(phase=JobPhase.LOST.value)
            .returning(col(JobRow.uid))
        )
        return found.all()

    async def next_plan(
        self,
        uid: str,
        *,
        revision: int | None = None,
        in_force: bool = True,
        pin: bool = False,
    ) -> tuple[int, int] | None:
        """Take the number of a new plan, which comes into force unless it is held.

        With `revision`, only while the job still has it; None where it has moved on. Returns the
        plan's number and the job's new revision. This one statement is what keeps two writers, of
        one Brain or of two, from overwriting each other.
        """
        conditions = [col(JobRow.uid) == uid]
        if revision is not None:
            conditions.append(col(JobRow.revision) == revision)
        number = col(JobRow.plan_count) + 1
        values: dict[str, Any] = {"plan_count": number}
        if in_force:
            values |= {"current_plan": number, "revision": col(JobRow.revision) + 1}
        if pin:
            values["pinned_plan"] = number
        row = (
            await self._session.execute(
                update(JobRow)
                .where(*conditions)
                .values(values)
                .returning(col(JobRow.plan_count), col(JobRow.revision))
            )
        ).one_or_none()
        return None if row is None else (row[0], row[1])

    async def unpin(self, uid: str, *, current_plan: int | None) -> None:
        """No override stands any more; `current_plan` is in force."""
        await self._session.execute(
            update(JobRow)
            .where(col(JobRow.uid) == uid)
            .values(pinned_plan=None, current_plan=current_plan, revision=col(JobRow.revision) + 1)
        )

    async def registered(self, start: float, end: float) -> int:
        """How many jobs came between two moments."""
        registered = col(JobRow.registered_seconds)
        found: int | None = await self._session.scalar(
            select(func.count()).where(registered >= start, registered < end)
        )
        return found or 0

    async def held_by(self, holder: str) -> Sequence[LiveJob]:
        """What an administrator looks at, of every active job whose lease a Brain has."""
        query = (
            select(
                col(JobRow.uid),
                col(JobRow.optimize),
                col(JobRow.current_plan),
                col(JobRow.step),
                col(JobRow.sampled_seconds),
                col(JobRow.out_of_memory_seconds),
                col(JobRow.symptoms),
            )
            .join(LeaseRow, col(LeaseRow.job_uid) == col(JobRow.uid))
            .where(
                col(JobRow.phase) == JobPhase.ACTIVE.value,
                col(LeaseRow.holder) == holder,
            )
        )
        return [LiveJob(*row) for row in await self._session.execute(query)]

    async def page(
        self,
        *,
        namespaces: Sequence[str] | None = None,
        namespace: str | None = None,
        phase: JobPhase | None = None,
        user: str | None = None,
        model: str | None = None,
        since: float | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 100,
    ) -> Sequence[JobRow]:
        """Jobs, newest first; `before` is the registration time and uid of the last one seen."""
        query = select(JobRow)
        if namespaces is not None:
            query = query.where(col(JobRow.namespace).in_(namespaces))
        for column, value in (
            (col(JobRow.namespace), namespace),
            (col(JobRow.phase), phase and phase.value),
            (col(JobRow.user_name), user),
            (col(JobRow.model), model),
        ):
            if value is not None:
                query = query.where(column == value)
        if since is not None:
            query = query.where(col(JobRow.registered_seconds) >= since)
        if before is not None:
            registered, uid = before
            query = query.where(
                or_(
                    col(JobRow.registered_seconds) < registered,
                    (col(JobRow.registered_seconds) == registered) & (col(JobRow.uid) < uid),
                )
            )
        query = query.order_by(col(JobRow.registered_seconds).desc(), col(JobRow.uid).desc())
        return (await self._session.scalars(query.limit(limit))).all()

    async def count_by_phase(self) -> dict[str, int]:
        """How many jobs are in each phase."""
        rows = await self._session.execute(
            select(col(JobRow.phase), func.count()).group_by(col(JobRow.phase))
        )
        return {row[0]: row[1] for row in rows}


# SQLModel makes it at run time.
_TABLE: Final[Table] = JobRow.__table__  # type: ignore[attr-defined]
_COUNTERS: Final[dict[str, Any]] = {
    "message": "",
    "warning": "",
    "step": 0,
    "steps_per_second": 0.0,
    "world_size": 0,
    "samples_dropped": 0,
    "symptoms": "",
    "plan_count": 0,
    "revision": 0,
}


def _revived() -> Any:
    """A lost job that is heard of again is active; a finished one stays finished."""
    return case(
        (col(JobRow.phase) == JobPhase.LOST.value, literal(JobPhase.ACTIVE.value)),
        else_=col(JobRow.phase),
    )
