"""Every query on idempotency keys."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from penstock.brain.store.tables import IdempotencyRow


class Idempotency:
    """The keys, within one transaction: the same one that does what they are for."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get(self, scope: str, key: str) -> IdempotencyRow | None:
        """What was done under a key."""
        return await self._session.get(IdempotencyRow, (scope, key))

    def add(self, scope: str, key: str, digest: str, *, plan: int, now: float) -> None:
        """Remember what was done under a key."""
        self._session.add(
            IdempotencyRow(scope=scope, key=key, digest=digest, plan=plan, created_seconds=now)
        )
