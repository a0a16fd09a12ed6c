"""Deletes what has been kept long enough, a bounded number of rows at a time."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Table, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.base.enums import JobPhase
from penstock.brain.configuration import RetentionSettings
from penstock.brain.model.rollups import MINUTE, TEN_MINUTES
from penstock.brain.store.tables import (
    AllocationRow,
    AuditRow,
    CapacityRow,
    EventRow,
    IdempotencyRow,
    JobRow,
    NodeRow,
    ProfileRow,
    RollupRow,
    RunRow,
    SampleRow,
    SnapshotRow,
)

BATCH: Final = 5000
CLUSTER_MINUTE_SECONDS: Final = 86_400.0
CLUSTER_TEN_MINUTE_SECONDS: Final = 14 * 86_400.0


async def expire(session: AsyncSession, settings: RetentionSettings, now: float) -> int:
    """Delete one batch of each table; how many rows went. Call it again until it returns 0."""
    deleted = 0
    for table, condition in _expired(settings, now):
        key = list(table.primary_key.columns)
        old = select(*key).where(condition).limit(BATCH)
        result: Any = await session.execute(
            delete(table)
            .where(tuple_(*key).in_(old) if len(key) > 1 else key[0].in_(old))
            .execution_options(synchronize_session=False)
        )
        deleted += result.rowcount
    return deleted


def _expired(settings: RetentionSettings, now: float) -> list[tuple[Table, ColumnElement[bool]]]:
    minute = col(RollupRow.resolution_seconds) == MINUTE
    ten_minutes = col(RollupRow.resolution_seconds) == TEN_MINUTES
    started, sent = col(RollupRow.start_seconds), col(SnapshotRow.time_seconds)
    of_minute = col(SnapshotRow.resolution_seconds) == MINUTE
    of_ten_minutes = col(SnapshotRow.resolution_seconds) == TEN_MINUTES
    over = col(JobRow.phase) != JobPhase.ACTIVE.value
    return [
        (_table(SampleRow), col(SampleRow.received_seconds) < now - settings.raw_seconds),
        (_table(RollupRow), minute & (started < now - settings.minute_seconds)),
        (_table(RollupRow), ten_minutes & (started < now - settings.ten_minute_seconds)),
        (_table(RunRow), col(RunRow.time_seconds) < now - settings.run_seconds),
        (_table(EventRow), col(EventRow.at_seconds) < now - settings.ten_minute_seconds),
        (_table(AuditRow), col(AuditRow.time_seconds) < now - settings.audit_seconds),
        (
            _table(IdempotencyRow),
            col(IdempotencyRow.created_seconds) < now - settings.idempotency_seconds,
        ),
        (_table(SnapshotRow), of_minute & (sent < now - CLUSTER_MINUTE_SECONDS)),
        (_table(SnapshotRow), of_ten_minutes & (sent < now - CLUSTER_TEN_MINUTE_SECONDS)),
        (
            _table(CapacityRow),
            col(CapacityRow.start_seconds) < now - settings.ten_minute_seconds,
        ),
        (_table(AllocationRow), col(AllocationRow.time_seconds) < now - settings.run_seconds),
        (
            _table(ProfileRow),
            col(ProfileRow.measured_seconds) < now - settings.audit_seconds,
        ),
        (_table(NodeRow), _forgotten(now - settings.audit_seconds, now)),
        # Plans, usages and everything else of a job go with it.
        (
            _table(JobRow),
            over & (col(JobRow.last_seen_seconds) < now - settings.ten_minute_seconds),
        ),
    ]


def _forgotten(old: float, now: float) -> ColumnElement[bool]:
    """Nodes of which nothing has been heard since, and that nobody has said anything about."""
    until = col(NodeRow.override_until_seconds)
    return (col(NodeRow.changed_seconds) < old) & (until.is_(None) | (until < now))


def _table(row: type[Any]) -> Table:
    table: Table = row.__table__
    return table
