"""Several authenticators, asked in turn."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.api.auth.caller import Authenticator, Caller, UnauthenticatedError


class Chain:
    """The first authenticator that knows the token decides who it is."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        if not authenticators:
            raise ValueError("a chain needs at least one authenticator")
        self._authenticators = tuple(authenticators)

    async def authenticate(self, token: str | None) -> Caller:
        """The caller. Raises the last authenticator's UnauthenticatedError."""
        error = UnauthenticatedError("the token is not known")
        for authenticator in self._authenticators:
            try:
                return await authenticator.authenticate(token)
            except UnauthenticatedError as refused:
                error = refused
        raise error
