"""Every query on profiles."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.brain.store.database import Database
from penstock.brain.store.tables import JobRow, ProfileRow
from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.profile import Profile, loads


class Profiles:
    """The profiles, within one transaction."""

    def __init__(self, database: Database, session: AsyncSession) -> None:
        self._database = database
        self._session = session

    async def put(self, values: Mapping[str, Any]) -> None:
        """Store a profile in place of the job's last one of that source."""
        insert = self._database.insert(ProfileRow).values({"uses": 0, **values})
        changed = [name for name in values if name not in ("job_uid", "source")]
        await self._session.execute(
            insert.on_conflict_do_update(
                index_elements=["job_uid", "source"],
                set_={name: insert.excluded[name] for name in changed},
                where=col(ProfileRow.measured_seconds) <= insert.excluded.measured_seconds,
            )
        )

    async def of_job(self, uid: str) -> tuple[ProfileRow, Profile] | None:
        """The newest of a job's own that this release can read."""
        query = select(ProfileRow).where(col(ProfileRow.job_uid) == uid)
        query = query.order_by(col(ProfileRow.measured_seconds).desc())
        rows = (await self._session.scalars(query)).all()
        return next(((row, known) for row in rows if (known := read(row))), None)

    async def has(self, uid: str) -> bool:
        """Whether there is one of the job's own, of any release."""
        query = select(col(ProfileRow.id)).where(col(ProfileRow.job_uid) == uid).limit(1)
        return (await self._session.scalar(query)) is not None

    async def of_kind(self, signature: str, *, but: str) -> ProfileRow | None:
        """The newest of another job of the same kind."""
        query = select(ProfileRow).where(
            col(ProfileRow.signature) == signature, col(ProfileRow.job_uid) != but
        )
        query = query.order_by(col(ProfileRow.measured_seconds).desc()).limit(1)
        return (await self._session.scalars(query)).first()

    async def note_use(self, id_: int, error: float) -> None:
        """Another job was planned with it, and it was off by so much."""
        await self._session.execute(
            update(ProfileRow)
            .where(col(ProfileRow.id) == id_)
            .values(uses=col(ProfileRow.uses) + 1, last_error=error)
        )

    async def page(
        self,
        filters: Mapping[str, str | None],
        before: int | None,
        limit: int,
    ) -> Sequence[ProfileRow]:
        """Profiles with these keys, the newest first; `before` is the id of the last one seen."""
        query = select(ProfileRow)
        for name, value in filters.items():
            if value is not None:
                query = query.where(getattr(ProfileRow, name) == value)
        if before is not None:
            query = query.where(col(ProfileRow.id) < before)
        query = query.order_by(col(ProfileRow.id).desc()).limit(limit)
        return (await self._session.scalars(query)).all()


async def planned_with(profiles: Profiles, job: JobRow) -> Profile | None:
    """The profile that a plan for a job is made from: its own, or else one of its kind."""
    if (own := await profiles.of_job(job.uid)) is not None:
        return own[1]
    if not (kind := kind_of(job)):
        return None
    row = await profiles.of_kind(kind, but=job.uid)
    return None if row is None else read(row)


def kind_of(job: JobRow) -> str:
    """Of which kind a job is; empty where its registration says nothing of it."""
    said = (job.model, job.dataset, job.code)
    if not any(said):
        return ""
    text = json.dumps([job.namespace, *said])
    return hashlib.sha256(text.encode()).hexdigest()[:64]


def read(row: ProfileRow) -> Profile | None:
    """The profile; None for one of another release, in a form that this one does not know."""
    try:
        return loads(row.content)
    except ProfileError:
        return None
