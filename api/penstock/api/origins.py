"""From where a browser may use this service: its public address, and for a service without tokens
those of this machine.

A page of another site can make a browser send a form here, and a name that somebody else owns can
be made to lead to this machine; neither may do anything with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.api.problems import response
from penstock.base.listener import is_loopback
from penstock.wire.problems import Problem, ProblemType


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """What browsers call the service: a URL, or, where none was given, whatever they called."""

    url: str = ""

    def is_secure(self, request: Request) -> bool:
        """Whether browsers reach it over TLS, which may end before this service."""
        return self.url.startswith("https:") or request.url.scheme == "https"

    def sent_itself(self, request: Request) -> bool:
        """Whether a request that changes something comes from a page of this service.

        A program that is no browser says nothing of it, and has no cookies to be used either.
        """
        site = request.headers.get("sec-fetch-site")
        if site is not None:
            return site in {"same-origin", "none"}
        origin = request.headers.get("origin")
        if origin is None:
            return True
        if self.url and origin == self.url:
            return True
        try:
            return urlsplit(origin).netloc == request.headers.get("host")
        except ValueError:
            return False

    @property
    def host(self) -> str | None:
        """The host of the URL."""
        return urlsplit(self.url).hostname if self.url else None


class LocalHosts:
    """ASGI middleware that answers only those who call this machine, or the public address."""

    def __init__(self, app: ASGIApp, address: PublicAddress) -> None:
        self._app = app
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http":
            called = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            if not self._is_known(called):
                refused = response(
                    Problem(
                        type=ProblemType.FORBIDDEN.value,
                        title="This is not allowed",
                        status=403,
                        detail=f"Host = {called!r:.100}: a service that asks for no token is "
                        "called by an address of this machine, or by its public_url",
                    )
                )
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_known(self, called: str) -> bool:
        try:
            host = urlsplit(f"//{called}").hostname
        except ValueError:
            return False
        return host is not None and (is_loopback(host) or host == self._address.host)
