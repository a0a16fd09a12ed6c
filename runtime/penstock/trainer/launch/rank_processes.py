"""The processes of one world in one pod: started, signalled and awaited."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.base.exit_codes import shell_code
from penstock.trainer.child_processes import end_leftovers, kill_group
from penstock.trainer.follow import FOLLOW
from penstock.trainer.launch.program import start
from penstock.trainer.launch.world import ERROR_FILE, World

MOST_RECORDED_BYTES: Final = 1 << 20
MOST_SHOWN: Final = 2000


class RankProcesses:
    """Those of one world at a time; close it at the end."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        ended: Callable[[int, int], None],
    ) -> None:
        """``ended`` is called with local rank and exit code, as a shell has it, of each."""
        self._command = command
        self._environ = environ
        self._ended = ended
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._records = tempfile.TemporaryDirectory(prefix="penstock-errors-")

    @property
    def pids(self) -> Collection[int]:
        """Of those whose end has not been seen."""
        return [process.pid for process in self._running.values()]

    async def start(self, world: World) -> None:
        """Start all processes of a world, of which no other one runs.

        Raises:
            OSError: they cannot be started; those that were have been killed.
        """
        await end_leftovers()
        for local_rank in range(len(world.ranks)):
            self._record(local_rank).unlink(missing_ok=True)
            told = world.environment(local_rank, self._environ)
            told[ERROR_FILE] = str(self._record(local_rank))
            told[FOLLOW] = "1"
            try:
                process = await start(self._command, told)
            except OSError:
                self.send(signal.SIGKILL)
                raise
            self._running[local_rank] = process
            watch = asyncio.create_task(self._watch(local_rank, process))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to each that runs, and to what it started."""
        for process in self._running.values():
            kill_group(process.pid, number)

    def error_of(self, local_rank: int) -> str:
        """What a process wrote about its end, as `torch.distributed.elastic` records it; or ""."""
        try:
            with self._record(local_rank).open("rb") as file:
                message = json.loads(file.read(MOST_RECORDED_BYTES))["message"]
        except (OSError, ValueError, KeyError, TypeError):
            return ""
        return _text_of(message)[:MOST_SHOWN]

    def close(self) -> None:
        """Remove what was recorded."""
        self._records.cleanup()

    def _record(self, local_rank: int) -> Path:
        return Path(self._records.name) / f"{local_rank}.json"

    async def _watch(self, local_rank: int, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        del self._running[local_rank]
        kill_group(process.pid, signal.SIGKILL)
        self._ended(local_rank, shell_code(code))


def _text_of(message: Any) -> str:
    return str(message.get("message", "")) if isinstance(message, dict) else str(message)
