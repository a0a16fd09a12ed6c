"""Replays in a process of their own: seconds of work, which the service must not feel.

One at a time; who asks meanwhile waits. The process ends with its answer, and by itself when its
time is over.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from penstock.brain.service.sample_writer import OverloadedError
from penstock.scheduler.capacity.comparison import Comparison, compare
from penstock.scheduler.capacity.replay import RecordedJob
from penstock.scheduler.capacity.workload import HostedNode

BUDGET_SECONDS: Final = 30.0
"""For one answer; repetitions that do not fit in are left out, and the answer says how many were
made."""

MOST_ASKED: Final = 3
"""Replays at once, of which one runs and the others wait."""

_NICENESS: Final = 10
_START_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """What is to be replayed: arguments of `compare`."""

    nodes: Sequence[HostedNode]
    jobs: Sequence[RecordedJob]
    before: str
    after: str
    span_seconds: float


class Replayer:
    """Runs one replay after the other."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)
        self._asked = 0

    async def run(self, task: ReplayTask, budget_seconds: float = BUDGET_SECONDS) -> Comparison:
        """The answer.

        Raises:
            InvalidRequestError: No such policy, or twice the same.
            OutOfTimeError: Not even one run with each policy was done in time.
            OverloadedError: Too many others wait for theirs.
            TimeoutError: The process does not answer.
        """
        if self._asked >= MOST_ASKED:
            raise OverloadedError(f"{self._asked} replays are asked for already: try again later")
        self._asked += 1
        try:
            async with self._turn:
                return await self._run(task, budget_seconds)
        finally:
            self._asked -= 1

    async def _run(self, task: ReplayTask, budget_seconds: float) -> Comparison:
        pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        try:
            async with asyncio.timeout(budget_seconds + _START_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(
                    pool, _compared, task, budget_seconds
                )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _compared(task: ReplayTask, budget_seconds: float) -> Comparison:
    os.nice(_NICENESS)
    deadline = time.monotonic() + budget_seconds
    return compare(
        task.nodes,
        task.jobs,
        task.before,
        task.after,
        task.span_seconds,
        in_time=lambda: time.monotonic() < deadline,
    )
