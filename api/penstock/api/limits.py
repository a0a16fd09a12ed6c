"""Refuses bodies over 1 MiB before anything reads them, whatever their header says."""

from __future__ import annotations

from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api.problems import response
from penstock.wire.problems import Problem, ProblemType

MAX_BODY_BYTES: Final = 1024**2


class BodyLimit:
    """ASGI middleware that counts the bytes of every body."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and (len(declared) > 12 or int(declared) > self._max):
            await _too_large(self._max)(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._max:
                raise HTTPException(413, f"the body exceeds {self._max} bytes")
            return message

        await self._app(scope, counted, send)


def _too_large(most: int) -> ASGIApp:
    return response(
        Problem(
            type=ProblemType.TOO_LARGE.value,
            title="The body is too large",
            status=413,
            detail=f"the body exceeds {most} bytes",
        ),
        {"Connection": "close"},
    )
