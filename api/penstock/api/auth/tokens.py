"""API tokens of the configuration, of which only hashes are kept.

Tokens are 256 random bits, so a plain SHA-256 cannot be searched; comparing goes through a table of
hashes, whose time says nothing about the token.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.api.auth.caller import Caller, Permission, UnauthenticatedError, Verb
from penstock.brain.configuration import ApiToken, ConfigurationError

SHORTEST_TOKEN: Final = 32
"""Characters of a token in a file."""
_READ: Final = frozenset({Verb.GET, Verb.LIST})


def new_token() -> tuple[str, str]:
    """A fresh token and the hash to put into the configuration."""
    token = f"pst_{secrets.token_urlsafe(32)}"
    return token, hash_of(token)


def hash_of(token: str) -> str:
    """What of a token is kept."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_in(path: Path) -> ApiToken:
    """The token that a file holds, for whoever started this Brain: it lets them do everything.

    Raises:
        ConfigurationError: the file cannot be read, or holds none, or one that could be guessed.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--token-file={path}: {error}") from error
    if len(token) < SHORTEST_TOKEN:
        raise ConfigurationError(
            f"--token-file={path}: {len(token)} characters; must be at least {SHORTEST_TOKEN}, as "
            "'penstock brain token NAME' makes them"
        )
    return ApiToken(name="local", sha256=hash_of(token), access="admin")


@dataclass(frozen=True, slots=True)
class TokenCaller:
    """Whoever holds one API token."""

    token: ApiToken

    @property
    def name(self) -> str:
        """The token's name."""
        return f"token:{self.token.name}"

    async def may(self, permission: Permission) -> bool:
        """By the token's access and namespaces."""
        own = self.token.namespaces
        if own is not None and permission.namespace not in own:
            # Algorithms belong to no namespace; everybody may look at them.
            return permission.resource == "algorithms" and permission.verb in _READ
        if permission.verb in _READ:
            return True
        if permission.resource in {"elasticjobs", "scales"}:
            return self.token.access in {"write", "admin"}
        return self.token.access == "admin"

    async def vouches_for(self, uid: str, namespace: str, name: str) -> bool:
        """Nobody can tell."""
        return True


class ApiTokens:
    """Knows the tokens of the configuration."""

    def __init__(self, tokens: Iterable[ApiToken], always: Iterable[ApiToken] = ()) -> None:
        """``always``: are known whatever the configuration comes to say."""
        self._by_hash: dict[str, TokenCaller] = {}
        self._always = tuple(always)
        self.replace(tokens)

    def __len__(self) -> int:
        return len(self._by_hash)

    def replace(self, tokens: Iterable[ApiToken]) -> None:
        """Know these tokens of the configuration from now on, and no others of it."""
        self._by_hash = {token.sha256: TokenCaller(token) for token in (*tokens, *self._always)}

    async def authenticate(self, token: str | None) -> Caller:
        """The holder of the token.

        Raises:
            UnauthenticatedError: There is no token, or nobody knows it.
        """
        if token is None:
            raise UnauthenticatedError("no token: send 'Authorization: Bearer TOKEN'")
        caller = self._by_hash.get(hash_of(token))
        if caller is None:
            raise UnauthenticatedError("the token is not known")
        return caller
