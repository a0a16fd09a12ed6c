"""Where a client's bearer token comes from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.client.errors import BrainAddressError


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A projected token: read anew for every call, since the kubelet replaces it in place."""

    path: Path

    def __call__(self) -> str:
        return self.path.read_text(encoding="ascii").strip()


Token = str | Callable[[], str] | None
"""A token, something that says the present one, or None for a Brain that asks for none."""


def is_token(text: str) -> bool:
    """Whether a header can carry it; one that cannot would be quoted in the transport's error."""
    return text.isascii() and text.isprintable() and " " not in text


def authorization(token: Token) -> dict[str, str]:
    """The header that carries the token.

    Raises:
        BrainAddressError: It is no token.
    """
    if token is None:
        return {}
    text = token if isinstance(token, str) else token()
    if not is_token(text):
        raise BrainAddressError(
            "the token for the Brain has spaces, line ends or characters that no token has"
        )
    return {"Authorization": f"Bearer {text}"}


async def authorization_async(token: Token) -> dict[str, str]:
    """The same, without holding up the event loop: a file or a cluster may be slow to say it."""
    if token is None or isinstance(token, str):
        return authorization(token)
    return await asyncio.to_thread(authorization, token)
