"""The vocabulary of access: a caller asks for a permission, an authenticator knows callers.

Permissions are spelt as Kubernetes would: a verb on a resource of group penstock.dev. `algorithms`,
`clustersnapshots` and `audits` exist for this purpose only; roles may name them like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class UnauthenticatedError(Exception):
    """There is no token, or nobody knows it."""


class ForbiddenError(Exception):
    """The caller is known and may not do this."""


class Verb(StrEnum):
    """What is done to a resource."""

    GET = "get"
    LIST = "list"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Permission:
    """One thing that a caller may be allowed; without a namespace it is about all of them."""

    verb: Verb
    resource: str = "elasticjobs"
    namespace: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        what = self.resource if self.name is None else f"{self.resource}/{self.name}"
        where = "in all namespaces" if self.namespace is None else f"in namespace {self.namespace}"
        return f"{self.verb} {what} {where}"


class Caller(Protocol):
    """Somebody who has been authenticated."""

    @property
    def name(self) -> str:
        """Who it is, for the audit."""

    async def may(self, permission: Permission) -> bool:
        """Whether the permission is granted."""

    async def vouches_for(self, uid: str, namespace: str, name: str) -> bool:
        """Whether a job of that name has that uid, where whoever knows the caller can tell."""


class Authenticator(Protocol):
    """Finds out who calls."""

    async def authenticate(self, token: str | None) -> Caller:
        """The caller with this bearer token.

        Raises:
            UnauthenticatedError: There is no token, or nobody knows it.
        """


async def require(caller: Caller, permission: Permission) -> None:
    """Raise ForbiddenError unless the permission is granted."""
    if not await caller.may(permission):
        raise ForbiddenError(f"{caller.name} may not {permission}")
