"""Where a client's bearer token comes from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A projected token: read anew for every call, since the kubelet replaces it in place."""

    path: Path

    def __call__(self) -> str:
        return self.path.read_text(encoding="ascii").strip()


Token = str | Callable[[], str] | None
"""A token, something that says the present one, or None for a Brain that asks for none."""


def authorization(token: Token) -> dict[str, str]:
    """The header that carries the token."""
    if token is None:
        return {}
    return {"Authorization": f"Bearer {token if isinstance(token, str) else token()}"}
