"""One HTTP request, and the replies to it, between ASGI and the application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from penstock_cluster.apiserver import paths
from penstock_cluster.apiserver.content import bodies, parameters
from penstock_cluster.apiserver.paths import Target
from penstock_cluster.apiserver.watching import WatchStream
from penstock_cluster.registry import RequestFacts
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import User
from penstock_cluster.registry.tokens import ANONYMOUS

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON_TYPE = b"application/json"
TEXT_TYPE = b"text/plain; charset=utf-8"


class Request:
    """One request: what was sent, and what is known about it."""

    __slots__ = (
        "_receive",
        "accept",
        "content_type",
        "method",
        "query",
        "target",
        "user",
        "user_agent",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self.method: str = scope["method"]
        raw = scope["query_string"]
        self.query: dict[str, str] = (
            dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {}
        )
        self.accept = ""
        self.content_type = ""
        self.user_agent = ""
        watching = parameters.flag(self.query, "watch") if self.query else False
        self.target: Target = paths.parse(self.method, scope["path"], watching=watching)
        self.user: User = ANONYMOUS

    async def body(self) -> bytes:
        """The whole body; :class:`ApiError` 413 when it is too large."""
        message = await self._receive()
        chunk: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if len(chunk) > bodies.BODY_LIMIT_BYTES:
                raise errors.too_large(bodies.BODY_LIMIT_BYTES)
            return chunk
        parts = [chunk]
        size = len(chunk)
        while message.get("more_body"):
            message = await self._receive()
            chunk = message.get("body", b"")
            size += len(chunk)
            if size <= bodies.BODY_LIMIT_BYTES:
                parts.append(chunk)
        if size > bodies.BODY_LIMIT_BYTES:
            raise errors.too_large(bodies.BODY_LIMIT_BYTES)
        return b"".join(parts)

    async def disconnected(self) -> None:
        """Returns when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def facts(self) -> RequestFacts:
        target = self.target
        return RequestFacts(
            self.method,
            target.path,
            self.query,
            target.verb if target.resource else "",
            target.group,
            target.version,
            target.resource,
            target.subresource,
            target.namespace,
            target.name,
            self.user.name,
            self.user_agent,
        )


class Reply:
    """A complete reply."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        content_type: bytes = JSON_TYPE,
        headers: Headers | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = headers


class StreamReply:
    """A reply that comes in pieces."""

    __slots__ = ("content_type", "pieces", "watch")

    def __init__(
        self, pieces: AsyncIterator[bytes], content_type: bytes, watch: WatchStream | None = None
    ) -> None:
        self.pieces = pieces
        self.content_type = content_type
        self.watch = watch
