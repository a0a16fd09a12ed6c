"""Who calls, and what they may do."""

from __future__ import annotations

from penstock.api.auth.caller import (
    Authenticator,
    Caller,
    ForbiddenError,
    Permission,
    UnauthenticatedError,
    Verb,
)

__all__ = [
    "Authenticator",
    "Caller",
    "ForbiddenError",
    "Permission",
    "UnauthenticatedError",
    "Verb",
]
