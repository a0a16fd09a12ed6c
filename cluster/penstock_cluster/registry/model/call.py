"""Who sends a request, and everything about it that is not the object."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class User:
    """Who sends a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, list[str]] = field(default_factory=dict, hash=False)


@dataclass(slots=True)
class Call:
    """Everything about one request that is not the object."""

    user: User
    manager: str
    now: str
    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    #: Bytes of the request body, when it came over HTTP.
    size: int = 0
    #: The verb as RBAC and admission see it.
    verb: str = ""
