"""Who changed what."""

from __future__ import annotations

import json

from fastapi import APIRouter

from penstock.api import paging
from penstock.api.auth import Permission, Verb
from penstock.api.auth.caller import require
from penstock.api.paging import Continue, Limit
from penstock.api.state import BrainDep, CallerDep, problems
from penstock.brain.store.audit import Audit
from penstock.brain.store.tables import AuditRow
from penstock.wire.base import ListResource
from penstock.wire.cluster import AuditEntry

router = APIRouter(prefix="/v1/audit", tags=["audit"])


@router.get("", responses=problems())
async def list_changes(
    caller: CallerDep, brain: BrainDep, limit: Limit = 100, continue_: Continue = None
) -> ListResource[AuditEntry]:
    """Overrides and changes of algorithms, newest first."""
    await require(caller, Permission(Verb.LIST, "audits"))
    position = paging.decode(continue_, int)
    async with brain.database.read() as session:
        rows = await Audit(session).page(
            before=None if position is None else position[0], limit=limit + 1
        )
    return paging.page(rows, limit, _entry, lambda row: [row.id or 0])


def _entry(row: AuditRow) -> AuditEntry:
    return AuditEntry(
        time_seconds=row.time_seconds,
        actor=row.actor,
        action=row.action,
        job_uid=row.job_uid,
        subject=row.subject,
        detail=json.loads(row.detail),
    )
