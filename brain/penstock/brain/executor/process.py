"""One child process, seen from the Brain: give it a task, get a result, within a time."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import time
from contextlib import suppress
from typing import Final

from penstock.brain.configuration import ExecutorSettings
from penstock.brain.executor.task import (
    HEADER,
    MAX_ANSWER_BYTES,
    Outcome,
    Task,
    TaskResult,
    decode,
)
from penstock.brain.history import HistoryRecord

_START_SECONDS: Final = 30.0
_CAUSE_SECONDS: Final = 5.0
"""How long the exit code of a child that closed its pipe is waited for: a busy machine is slow."""


class ExecutorProcess:
    """A child that runs one task at a time. After a failure to answer it is not used again."""

    def __init__(self, settings: ExecutorSettings, process: asyncio.subprocess.Process) -> None:
        self._settings = settings
        self._process = process
        self._calls = 0
        self._broken = False
        self._record: HistoryRecord | None = None

    @classmethod
    async def start(cls, settings: ExecutorSettings) -> ExecutorProcess:
        """Start a child and wait until it is ready.

        Raises:
            OSError: It does not come up.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "penstock.brain.executor.child",
            str(settings.memory_bytes),
            str(settings.timeout_seconds),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Threads of numeric libraries reserve memory that the bound would count.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        child = cls(settings, process)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_SECONDS):
                await process.stdout.readexactly(HEADER.size)
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            child._broken = True
            await child.stop()
            raise OSError(
                f"an executor did not start within {_START_SECONDS:g} s "
                f"(executor.memory_bytes = {settings.memory_bytes}): {type(error).__name__}"
            ) from error
        except BaseException:
            child._broken = True
            await child.stop()
            raise
        return child

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it can take another task."""
        return (
            not self._broken
            and self._process.returncode is None
            and self._calls < self._settings.calls_per_process
        )

    def knows(self, record: HistoryRecord) -> bool:
        """Whether the last call was about this very record: it has its history at hand."""
        return self._record is record

    async def run(self, task: Task) -> TaskResult:
        """Run one task. Never raises for what the algorithm does."""
        self._record = task.record
        frame = pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
        self._calls += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                answer = await self._exchange(frame)
        except TimeoutError:
            self._broken = True
            detail = (
                f"no answer within {self._settings.timeout_seconds:g} s (executor.timeout_seconds)"
            )
            return TaskResult(Outcome.TIMED_OUT, time.monotonic() - began, detail=detail)
        except (asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
            self._broken = True
            return TaskResult(
                Outcome.CRASHED, time.monotonic() - began, detail=await self._cause(error)
            )
        except BaseException:  # cancelled half-way: the pipe holds the rest of an old answer
            self._broken = True
            raise
        return decode(answer, time.monotonic() - began)

    async def stop(self) -> None:
        """End the child: politely when idle, by force when not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if self._broken else 2):
                await self._process.wait()
        # asyncio reports the end of a process only after that of its pipes, and a pipe whose rest
        # nobody reads, or that a grandchild holds, has none: close them ourselves.
        self._process._transport.close()  # type: ignore[attr-defined]
        await self._process.wait()

    async def _exchange(self, frame: bytes) -> bytes:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(HEADER.pack(len(frame)) + frame)
        await stdin.drain()
        (length,) = HEADER.unpack(await stdout.readexactly(HEADER.size))
        if length > MAX_ANSWER_BYTES:
            raise ValueError(f"an answer of {length} bytes: at most {MAX_ANSWER_BYTES} are read")
        return await stdout.readexactly(length)

    async def _cause(self, error: BaseException) -> str:
        if isinstance(error, ValueError):
            return str(error)
        try:
            async with asyncio.timeout(_CAUSE_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            return f"the process closed its pipe: {type(error).__name__}"
        return f"the process was ended by signal {-code}" if code < 0 else f"it exited with {code}"
