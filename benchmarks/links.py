"""A link between a data worker and a program that carries so many bytes a second and no more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

_CHUNK: Final = 1 << 18
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
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2 * _CHUNK)

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
        there_reader, there_writer = await asyncio.open_connection(*self._to, limit=2 * _CHUNK)
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        free = time.monotonic()
        while content := await reader.read(_CHUNK):
            self.passed += len(content)
            free = (
                max(free, time.monotonic() - _SHORTEST_SLEEP) + len(content) / self.bytes_per_second
            )
            if (ahead := free - time.monotonic()) > _SHORTEST_SLEEP:
                await asyncio.sleep(ahead)
            writer.write(content)
            await writer.drain()
        writer.close()
