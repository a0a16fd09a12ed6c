"""What finished jobs used: written once as a job ends, read for the plans of later ones."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.elements import ColumnElement
from sqlmodel import col

from penstock.base.enums import JobPhase, Role, Strategy
from penstock.brain.planning import JobDescription, PastJob, RoleUsage, Signature
from penstock.brain.store.tables import JobRow, UsageRow


class PastJobs:
    """The finished jobs, within one transaction."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, rows: Iterable[UsageRow]) -> None:
        """Store what the roles of a job used."""
        for row in rows:
            await self._session.merge(row)

    async def similar(self, job: JobDescription, since: float, limit: int) -> tuple[PastJob, ...]:
        """Finished jobs that share any part of the signature, the newest `limit` of them."""
        shared = _shared(job.signature)
        if not shared:
            return ()
        query = (
            select(JobRow)
            .where(
                col(JobRow.phase).in_([JobPhase.SUCCEEDED.value, JobPhase.FAILED.value]),
                col(JobRow.finished_seconds) >= since,
                col(JobRow.strategy) == job.strategy.value,
                col(JobRow.uid) != job.uid,
                or_(*shared),
            )
            .order_by(col(JobRow.finished_seconds).desc())
            .limit(limit)
        )
        found = {row.uid: row for row in (await self._session.scalars(query)).all()}
        usages: dict[str, list[UsageRow]] = {}
        uids = list(found)
        for start in range(0, len(uids), 500):
            rows = await self._session.scalars(
                select(UsageRow).where(col(UsageRow.job_uid).in_(uids[start : start + 500]))
            )
            for row in rows.all():
                usages.setdefault(row.job_uid, []).append(row)
        return tuple(_past(found[uid], own) for uid, own in usages.items())

    async def succeeded(
        self,
        signature: Signature,
        strategy: Strategy,
        since: float,
        limit: int,
        namespace: str | None = None,
    ) -> list[JobRow]:
        """Jobs that succeeded and share any part of a signature, the newest `limit` of them.

        `namespace` None: of all.
        """
        shared = _shared(signature)
        if not shared:
            return []
        query = select(JobRow).where(
            col(JobRow.phase) == JobPhase.SUCCEEDED.value,
            col(JobRow.finished_seconds) >= since,
            col(JobRow.strategy) == strategy.value,
            or_(*shared),
        )
        if namespace is not None:
            query = query.where(col(JobRow.namespace) == namespace)
        query = query.order_by(col(JobRow.finished_seconds).desc()).limit(limit)
        return list((await self._session.scalars(query)).all())


def signature_of(job: JobRow) -> Signature:
    """What similar jobs of it are found by."""
    return Signature(model=job.model, dataset=job.dataset, user=job.user_name, code=job.code)


def _shared(signature: Signature) -> list[ColumnElement[bool]]:
    return [
        column == value
        for column, value in (
            (col(JobRow.dataset), signature.dataset),
            (col(JobRow.model), signature.model),
            (col(JobRow.user_name), signature.user),
        )
        if value
    ]


def _past(job: JobRow, usages: list[UsageRow]) -> PastJob:
    return PastJob(
        uid=job.uid,
        signature=signature_of(job),
        strategy=Strategy(job.strategy),
        finished_seconds=job.finished_seconds or job.last_seen_seconds,
        succeeded=job.phase == JobPhase.SUCCEEDED.value,
        steps_per_second=max((row.steps_per_second for row in usages), default=0.0),
        roles={
            Role(row.role): RoleUsage(
                replicas=row.replicas,
                milli_cpu=row.milli_cpu,
                hottest_milli_cpu=row.hottest_milli_cpu,
                peak_memory_bytes=row.peak_memory_bytes,
                total_memory_bytes=row.total_memory_bytes,
            )
            for row in usages
        },
        out_of_memory=frozenset(Role(row.role) for row in usages if row.out_of_memory),
    )
