"""A link between a data worker and a program that carries so many bytes a second and no more."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import Final

_CHUNK: Final = 1 << 17
_SHORTEST_SLEEP: Final = 0.002
"""Each takes a little longer than was asked for."""


class Link:
    """A proxy between one data worker and the program, which can be made slow."""

    def __init__(self) -> None:
        self.bytes_per_second = float("inf")
        self.passed = 0
        self._to = ("", 0)
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """At `address` from then on."""
        sock = socket.socket()
        # What lies in the proxy has arrived, for the sender: so that must not be much.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
        sock.bind(("127.0.0.1", 0))
        self._server = await asyncio.start_server(self._connected, sock=sock, limit=_CHUNK)

    async def aclose(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    def address(self, to: str) -> str:
        """Where this proxy is, for who wants to reach ``to``."""
        host, _, port = to.rpartition(":")
        self._to = (host.strip("[]"), int(port))
        assert self._server is not None, "it listens"
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._to, limit=_CHUNK)
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        free = time.monotonic()
        while content := await reader.read(_CHUNK):
            self.passed += len(content)
            free = max(free, time.monotonic() - _SHORTEST_SLEEP)
            free += len(content) / self.bytes_per_second
            if (ahead := free - time.monotonic()) > _SHORTEST_SLEEP:
                await asyncio.sleep(ahead)
            writer.write(content)
            await writer.drain()
        writer.close()
