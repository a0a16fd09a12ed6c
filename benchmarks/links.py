"""A link between a data worker and a program that carries so many bytes a second and no more."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import Final

_CHUNK: Final = 1 << 17
_END_SECONDS: Final = 2.0
_SHORTEST_SLEEP: Final = 0.002
"""Each takes a little longer than was asked for."""


class Link:
    """A proxy between one data worker and the program, which can be made slow."""

    def __init__(self) -> None:
        self.bytes_per_second = float("inf")
        self.passed = 0
        self._to = ("", 0)
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """At `address` from then on."""
        sock = socket.socket()
        # What lies in the proxy has arrived, for the sender: so that must not be much.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
        sock.bind(("127.0.0.1", 0))
        self._server = await asyncio.start_server(self._connected, sock=sock, limit=_CHUNK)

    async def aclose(self) -> None:
        """Listen no more, and end what is connected."""
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*map(self._end, tuple(self._ends)))

    def address(self, to: str) -> str:
        """Where this proxy is, for who wants to reach ``to``."""
        host, _, port = to.rpartition(":")
        self._to = (host.strip("[]"), int(port))
        assert self._server is not None, "it listens"
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        try:
            there_reader, there = await asyncio.open_connection(*self._to, limit=_CHUNK)
            self._ends.add(there)
        except OSError:
            await self._end(writer)
            return
        try:
            await asyncio.gather(self._pump(reader, there), self._pump(there_reader, writer))
        except OSError:
            pass
        finally:
            await self._end(writer)
            await self._end(there)

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await writer.wait_closed()
        self._ends.discard(writer)

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
