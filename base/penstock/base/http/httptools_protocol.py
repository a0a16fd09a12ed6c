"""uvicorn's connections over httptools, the faster parser, kept in a table and with bounded heads.

httptools keeps the head of a request, and the trailers of a body, until their end, however long
they are and whoever sends them.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.base.http.connections import ConnectionTable

HEAD_LIMIT_BYTES: Final = 64 * 1024
"""The most that address and headers of a request may have together."""
_LINGER_SECONDS: Final = 0.5
"""So long is what still comes read and dropped: a reset would take the refusal along."""
_REFUSAL: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 35\r\nconnection: close\r\n\r\n"
    b"431 Request Header Fields Too Large"
)


class BoundedHttpToolsProtocol(HttpToolsProtocol):
    """One connection."""

    table: ClassVar[ConnectionTable[BoundedHttpToolsProtocol]]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._is_refused = False
        self._has_moved = False
        #: What came since the parser last moved on.
        self._pending_bytes = 0

    # uvicorn narrows asyncio's type, too.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the place of another, if need be."""
        super().connection_made(transport)
        gone = self.table.admit(self, self.loop.time())
        if gone is not None:
            gone.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the place to others."""
        self.table.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a request came."""
        if self._is_refused:
            return
        self._has_moved = False
        super().data_received(data)
        # Of a piece in which it moved on only a part is pending, and which is not known.
        self._pending_bytes = 0 if self._has_moved else self._pending_bytes + len(data)
        if self._pending_bytes > HEAD_LIMIT_BYTES:
            self._refuse()
        # uvicorn has None there before the first request.
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            self.table.note_busy(self, self.loop.time())

    def on_message_begin(self) -> None:
        """The parser moves on."""
        self._has_moved = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The parser moves on."""
        self._has_moved = True
        head = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if head > HEAD_LIMIT_BYTES:
            self._refuse()
        if not self._is_refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """The parser moves on."""
        self._has_moved = True
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The parser moves on."""
        self._has_moved = True
        if not self._is_refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer has been sent; another request may have come meanwhile."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.table.note_idle(self, self.loop.time())

    def lacks_body(self) -> bool:
        """Whether the request's body is not complete."""
        cycle: Any = self.cycle
        return cycle is not None and bool(cycle.more_body)

    def is_stalled(self) -> bool:
        """Whether the other end does not take what it is sent."""
        return self.flow.write_paused

    def drop(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def _refuse(self) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            self.transport.close()  # in the midst of another reply there is no place for this one
            return
        self.transport.write(_REFUSAL)
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)
