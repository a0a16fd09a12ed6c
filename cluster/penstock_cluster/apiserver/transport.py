"""uvicorn's connections: one system call per reply, and heads of bounded size.

uvicorn writes the head and the body of a reply apart, which costs a system call and often a packet
each. At thousands of replies a second that is a third of the server's time: what is written in one
turn of the loop leaves together.

uvicorn keeps a request's head until its end, however long it is and whoever sends it: here it is
refused, as the real server does.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock_cluster.registry.model.call import User

HEAD_LIMIT_BYTES: Final = 64 * 1024
"""The most that address and headers of a request may have together."""
HEAD_SECONDS: Final = 10.0
"""From connecting to the end of the first request's head."""
_LINGER_SECONDS: Final = 0.5
"""So long is what still comes read and dropped: a reset would take the refusal along."""
_REFUSAL: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 35\r\nconnection: close\r\n\r\n"
    b"431 Request Header Fields Too Large"
)


CERTIFIED_USER: Final = "penstock_cluster.certified_user"
"""An extension of a request's scope: ``user`` is whom the connection's certificate names."""


def certified_user(certificate: Any) -> User | None:
    """The user of a client certificate that was verified, as Python's ``ssl`` gives it.

    As Kubernetes has it: the common name is the user, organisations are groups.
    """
    named: dict[str, list[str]] = {}
    for parts in (certificate or {}).get("subject", ()):
        for key, value in parts:
            named.setdefault(key, []).append(value)
    if not (names := named.get("commonName")):
        return None
    return User(names[-1], (*named.get("organizationName", ()), "system:authenticated"))


class GatheringTransport(asyncio.Transport):
    """A transport that passes on in one piece what was written in one turn of the loop."""

    def __init__(self, inner: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._inner = inner
        self._loop = loop
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def _flush(self) -> None:
        pieces = self._pieces
        if not pieces:
            return
        self._pieces = []
        if not self._inner.is_closing():
            self._inner.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def close(self) -> None:
        self._flush()
        self._inner.close()

    def abort(self) -> None:
        self._pieces.clear()
        self._inner.abort()

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def is_reading(self) -> bool:
        return self._inner.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._inner.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size() + sum(map(len, self._pieces))


class GatheringProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol over a :class:`GatheringTransport`, with a bound for heads."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._is_refused = False
        self._has_moved = False
        #: What came since the parser last moved on; it keeps headers and trailers until their end.
        self._pending_bytes = 0

    # `uvicorn` passes its own transport.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(GatheringTransport(transport, self.loop))
        self._user = certified_user(transport.get_extra_info("peercert"))
        self._silence = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._silence.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._has_moved = False
        super().data_received(data)
        # Of a piece in which it moved on only a part is pending, and which is not known.
        self._pending_bytes = 0 if self._has_moved else self._pending_bytes + len(data)
        if self._pending_bytes > HEAD_LIMIT_BYTES:
            self._refuse()

    def _refuse(self) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        cycle: Any = self.cycle  # uvicorn has None there before the first request
        if cycle is not None and not cycle.response_complete:
            self.transport.close()  # in the midst of another reply there is no place for this one
            return
        self.transport.write(_REFUSAL)
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def on_message_begin(self) -> None:
        self._has_moved = True
        super().on_message_begin()
        if self._user is not None:
            self.scope["extensions"] = {CERTIFIED_USER: {"user": self._user}}

    def on_headers_complete(self) -> None:
        self._has_moved = True
        head = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if head > HEAD_LIMIT_BYTES:
            self._refuse()
        if not self._is_refused:
            self._silence.cancel()
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_moved = True
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_moved = True
        if not self._is_refused:
            super().on_message_complete()
