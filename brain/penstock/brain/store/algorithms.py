"""Every query on the settings of algorithms that were changed while a Brain ran."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from penstock.brain.registry import AlgorithmSettings
from penstock.brain.store.tables import AlgorithmRow


class AlgorithmChanges:
    """The changes, within one transaction."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def all(self) -> dict[str, AlgorithmSettings]:
        """The settings of every algorithm that was changed, by name."""
        rows = await self._session.scalars(select(AlgorithmRow))
        return {row.name: AlgorithmSettings.model_validate_json(row.settings) for row in rows.all()}

    async def put(self, name: str, settings: AlgorithmSettings, now: float) -> None:
        """Store the settings of one algorithm."""
        row = AlgorithmRow(name=name, settings=settings.model_dump_json(), changed_seconds=now)
        await self._session.merge(row)
