"""A pool of executor processes whose size follows the configuration while it runs."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.brain.configuration import ExecutorSettings
from penstock.brain.executor.process import ExecutorProcess
from penstock.brain.executor.task import Outcome, Task, TaskResult
from penstock.brain.history import HistoryRecord

_QUEUE_SECONDS: Final = 60.0


class Executor:
    """Runs tasks, at most `settings.processes` at a time; the rest wait their turn.

    Processes are started when first needed and replaced when they fail.
    """

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._idle: list[ExecutorProcess] = []
        self._busy = 0
        self._turn = asyncio.Condition()
        self._closed = False

    @property
    def size(self) -> int:
        """Processes that exist now."""
        return len(self._idle) + self._busy

    @property
    def busy(self) -> int:
        """Processes that run a task now."""
        return self._busy

    async def configure(self, settings: ExecutorSettings) -> None:
        """Take over another configuration; running calls end under the old one."""
        async with self._turn:
            old, self._idle = self._idle, []
            self._settings = settings
            self._turn.notify_all()
        await _stop(old)

    async def run(self, task: Task) -> TaskResult:
        """Run one task when it is its turn. Never raises for what the algorithm does."""
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                process = await self._take(task.record)
        except TimeoutError:
            detail = f"no executor was free for {_QUEUE_SECONDS:g} s: raise executor.processes"
            return TaskResult(Outcome.FAILED, _QUEUE_SECONDS, detail=detail)
        settings = self._settings
        try:
            process = process or await ExecutorProcess.start(settings)
            return await process.run(task)
        except OSError as error:
            detail = f"no process could be started: {error}"
            return TaskResult(Outcome.FAILED, 0.0, detail=detail)
        finally:
            await asyncio.shield(self._give_back(process, settings))

    async def close(self) -> None:
        """Stop the idle processes; those that are busy stop when their call ends."""
        async with self._turn:
            self._closed = True
            old, self._idle = self._idle, []
            self._turn.notify_all()
        await _stop(old)

    async def _take(self, record: HistoryRecord) -> ExecutorProcess | None:
        """Wait for a turn; an idle process, or None where one is to be started.

        Of those that are idle the one that was asked about this record before, or the last used.
        """
        async with self._turn:
            await self._turn.wait_for(lambda: self._busy < self._settings.processes)
            self._busy += 1
            knowing = next((each for each in self._idle if each.knows(record)), None)
            if knowing is not None:
                self._idle.remove(knowing)
                return knowing
            return self._idle.pop() if self._idle else None

    async def _give_back(self, process: ExecutorProcess | None, settings: ExecutorSettings) -> None:
        async with self._turn:
            self._busy -= 1
            keep = (
                process is not None
                and process.usable
                and not self._closed
                and settings is self._settings
                and self.size < self._settings.processes
            )
            if keep and process is not None:
                self._idle.append(process)
            self._turn.notify_all()
        if process is not None and not keep:
            await process.stop()


async def _stop(processes: list[ExecutorProcess]) -> None:
    await asyncio.gather(*(process.stop() for process in processes))
