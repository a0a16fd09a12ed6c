"""Looks at the token before anything of a body is read, so that strangers cannot have it kept."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.api import problems
from penstock.api.auth import Authenticator
from penstock.api.state import caller_of_header

_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class TokenFirst:
    """ASGI middleware for the calls of the API that have a body."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if (
            scope["type"] == "http"
            and scope["method"] in _WITH_BODY
            and scope["path"].startswith("/v1/")
        ):
            request = Request(scope)
            try:
                await caller_of_header(self._authenticator, request.headers.get("authorization"))
            except Exception as error:
                refused = await problems.refusal(request, error)
                if refused is None:
                    raise
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)
