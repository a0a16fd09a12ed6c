"""The process that starts the containers, and the socket over which it is spoken to.

A shim that has died is replaced with the next request; everything that it had started is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_SOURCE_ROOT: Final = Path(__file__).parents[3]
_SHIM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from penstock_cluster.kubelet.shim.main import main; main(int(sys.argv[2]))"
)
_STOP_TIMEOUT_SECONDS: Final = 10.0
_LONGEST_MESSAGE_BYTES: Final = 1 << 22


class ShimConnection:
    """One shim at a time: started when it is needed, closed with all that it started."""

    def __init__(self, take: Callable[[dict[str, Any]], None], lost: Callable[[], None]) -> None:
        """``take`` gets each event; ``lost`` is called when a shim and its containers are gone."""
        self._take = take
        self._lost = lost
        self._shim: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._replacing = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the shim; None: there is none."""
        return self._shim.pid if self._shim is not None else None

    def send(self, request: dict[str, Any]) -> None:
        """Send a request; nothing happens to one that no shim hears."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(request).encode() + b"\n")

    async def ensure(self) -> None:
        """Start a shim unless one is there."""
        async with self._replacing:
            if self._reading is None or self._reading.done():
                await self._start()

    async def _start(self) -> None:
        await self._close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._shim = subprocess.Popen(  # noqa: ASYNC220  returns after 2 ms
                [sys.executable, "-I", "-S", "-c", _SHIM, str(_SOURCE_ROOT), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        reader, self._writer = await asyncio.open_unix_connection(
            sock=ours, limit=_LONGEST_MESSAGE_BYTES
        )
        self._reading = asyncio.create_task(self._read_events(reader), name="container-runtime")

    async def close(self) -> None:
        """End the shim, and with it every container."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._close()

    async def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None
        if self._shim is not None:
            shim, self._shim = self._shim, None
            try:
                await asyncio.to_thread(shim.wait, _STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                shim.kill()
                await asyncio.to_thread(shim.wait)
        self._lost()

    async def _read_events(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._take(json.loads(line))
        except OSError:
            pass  # as good as the end of the stream
        finally:
            self._lost()
