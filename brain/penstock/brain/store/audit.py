"""Every query on the audit: who changed what, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.brain.store.tables import AuditRow


class Audit:
    """The audit, within one transaction: the same one that makes the change."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(
        self,
        *,
        time_seconds: float,
        actor: str,
        action: str,
        job_uid: str | None = None,
        subject: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Note one change."""
        self._session.add(
            AuditRow(
                time_seconds=time_seconds,
                actor=actor[:253],
                action=action,
                job_uid=job_uid,
                subject=subject[:253],
                detail=json.dumps(detail or {}, default=str),
            )
        )

    async def page(self, *, before: int | None, limit: int) -> Sequence[AuditRow]:
        """Changes, the newest first; `before` is the id of the last one seen."""
        query = select(AuditRow)
        if before is not None:
            query = query.where(col(AuditRow.id) < before)
        query = query.order_by(col(AuditRow.id).desc()).limit(limit)
        return (await self._session.scalars(query)).all()
