"""Every query on what is known of nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel import col

from penstock.brain.store.tables import NodeRow


class Nodes:
    """The nodes, within one transaction."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get(self, name: str) -> NodeRow | None:
        """One node; None where nothing is known of it."""
        return await self._session.get(NodeRow, name, populate_existing=True)

    async def named(self, names: Collection[str]) -> dict[str, NodeRow]:
        """Those of these that are known."""
        query = select(NodeRow).where(col(NodeRow.name).in_(names))
        return {row.name: row for row in (await self._session.scalars(query)).all()}

    def add(self, row: NodeRow) -> None:
        """Remember a node of which nothing was known."""
        self._session.add(row)

    async def count(self) -> int:
        """How many are known."""
        return await self._session.scalar(select(func.count()).select_from(NodeRow)) or 0

    async def standing(self, now: float) -> Sequence[NodeRow]:
        """Those of which a check or a person says something that still counts."""
        return (
            await self._session.scalars(
                select(NodeRow).where(
                    or_(
                        col(NodeRow.avoid_until_seconds) > now,
                        col(NodeRow.override_until_seconds) > now,
                    )
                )
            )
        ).all()

    async def page(self, after: str | None, limit: int) -> Sequence[NodeRow]:
        """All, by name; `after` is the last one seen."""
        query = select(NodeRow)
        if after is not None:
            query = query.where(col(NodeRow.name) > after)
        return (await self._session.scalars(query.order_by(col(NodeRow.name)).limit(limit))).all()
