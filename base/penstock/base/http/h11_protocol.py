"""uvicorn's connections over h11, which is there wherever uvicorn is, kept in a table."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from penstock.base.http.connections import ConnectionTable


class BoundedH11Protocol(H11Protocol):
    """One connection; h11 itself bounds the heads of requests (`Config.h11_max_...`)."""

    table: ClassVar[ConnectionTable[BoundedH11Protocol]]

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
        super().data_received(data)
        cycle: Any = self.cycle  # uvicorn has None there before the first request
        if cycle is not None and not cycle.response_complete:
            self.table.note_busy(self, self.loop.time())

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
