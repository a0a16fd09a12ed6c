"""No authentication at all: only by an explicit flag, and only on loopback."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api.auth.caller import Caller, Permission


@dataclass(frozen=True, slots=True)
class AnonymousCaller:
    """Anybody who reaches the loopback interface; may do everything."""

    name: str = "anonymous"

    async def may(self, permission: Permission) -> bool:
        """Always."""
        return True

    async def vouches_for(self, uid: str, namespace: str, name: str) -> bool:
        """Nobody can tell."""
        return True


class Anonymous:
    """Knows everybody."""

    async def authenticate(self, token: str | None) -> Caller:
        """The anonymous caller, whatever the token."""
        return AnonymousCaller()
