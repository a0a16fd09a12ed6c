"""A way between pods on which packets can come late: a slow network, without privileges.

While it is open, the processes of pods connect to other pods through it: each leaves a note, named
by its own end of the connection, of where it wants to go (see :mod:`hook.sitecustomize`). What
passes is delayed in both directions, in order, with nothing lost; delays of a pod hold at once, for
the connections that it has as well. Connections that were made before it was open go by themselves.
Where a connection is refused at its end, it is accepted here and ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from pathlib import Path

from penstock_cluster.kubelet.network.hosts import write_atomically

CHUNK_BYTES = 1 << 16
MOST_WAITING = 64
"""Chunks of one direction that are under way; who sends more has to wait."""
PLACE = "place"


@dataclass(frozen=True, slots=True)
class _Delay:
    seconds: float
    jitter: float


class Relay:
    """The way of one cluster; ``open`` it, ``aclose`` it."""

    def __init__(self, folder: Path, host: str) -> None:
        """``folder``: where its address is, and notes are left; not yet open."""
        self.folder = folder
        self._host = host
        self._delays: dict[str, _Delay] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # No connection goes to the relay of a cluster that had this folder before.
        (folder / PLACE).unlink(missing_ok=True)

    async def open(self) -> None:
        """New connections between pods go this way from now on."""
        if self._server is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._server = await asyncio.start_server(self._connected, self._host, 0)
            host, port = self._server.sockets[0].getsockname()[:2]
            write_atomically(self.folder / PLACE, f"{host} {port}")

    async def aclose(self) -> None:
        """End it, and all connections that go by it."""
        (self.folder / PLACE).unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def delay(self, address: str, seconds: float, jitter: float) -> None:
        """What comes from and goes to a pod takes ``seconds`` longer, ``jitter`` more or less."""
        self._delays[address] = _Delay(seconds, jitter)

    def restore(self, address: str | None = None) -> None:
        """No delay of a pod any more; None: of all."""
        if address is None:
            self._delays.clear()
        else:
            self._delays.pop(address, None)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        writers = [writer]
        try:
            own, port = writer.get_extra_info("peername")[:2]
            note = self.folder / f"{own}:{port}"
            host, to = note.read_text().split()
            note.unlink()
            there, back = await asyncio.open_connection(host, int(to), local_addr=(own, 0))
            writers.append(back)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._carry(reader, back, (own, host)))
                ways.create_task(self._carry(there, writer, (own, host)))
        except* OSError:
            pass  # one end is gone, and so is the connection
        finally:
            for one in writers:
                one.transport.abort()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: tuple[str, str],
    ) -> None:
        """One direction, to its end."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MOST_WAITING)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._deliver(waiting, writer))
            due, content = 0.0, b"-"
            while content:
                content = await reader.read(CHUNK_BYTES)
                now = asyncio.get_running_loop().time()
                due = max(due, now + self._late(ends))
                await waiting.put((due, content))

    @staticmethod
    async def _deliver(
        waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, content = await waiting.get()
            ahead = due - asyncio.get_running_loop().time()
            if ahead > 0:
                await asyncio.sleep(ahead)
            if not content:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            writer.write(content)
            await writer.drain()

    def _late(self, ends: tuple[str, str]) -> float:
        found = [self._delays[end] for end in ends if end in self._delays]
        # For a test's disturbance any generator will do.
        return sum(max(0.0, one.seconds + random.uniform(-one.jitter, one.jitter)) for one in found)  # noqa: S311
