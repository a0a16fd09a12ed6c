"""A job with parameter servers as plain processes, their CPU limited as in the embedded cluster.

No control plane: limits change from one moment to the next, so that many configurations of the real
runtime can be measured in a short time.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.elastic.cluster import ROOT
from benchmarks.parameters.steplogs import StepLog
from penstock.crds import environment as names
from penstock_cluster.kubelet.container.runtime import ProcessSpec, Running, Runtime

TOKEN = "benchmark"
START_SECONDS = 60.0
_BURNER = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True:
    pass
"""


@dataclass(frozen=True)
class Measured:
    """What a job did over a span of time; CPU in cores, by rank."""

    seconds: float
    steps_per_second: float
    worker_cores: tuple[float, ...]
    server_cores: tuple[float, ...]


class QuotaJob:
    """A trainer, servers and workers; see `running_quota_job`."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        self._step_log = folder / "steps"
        self._log = StepLog(self._step_log)
        self.address = ""
        self._runtime = runtime
        self._folder = folder
        self._workers: list[Running] = []
        self._servers: list[Running] = []

    async def start_trainer(self, servers: int) -> None:
        """Start the trainer, and so many servers."""
        await self._start("trainer", ["trainer", "--port=0"], {})
        log = self._folder / "trainer.log"
        found = await self.wait_for(
            lambda: re.search(r"listening on http://(\S+)", log.read_text()), "the trainer"
        )
        self.address = found[1]
        for rank in range(servers):
            environ = self._identity("ps", rank)
            self._servers.append(await self._start(f"ps-{rank}", ["ps"], environ))

    async def start_worker(self, *command: str) -> None:
        """Start one more worker."""
        rank = len(self._workers)
        environ = {**self._identity("worker", rank), names.STEP_LOG: str(self._step_log)}
        arguments = ["run", "--", sys.executable, *command]
        self._workers.append(await self._start(f"worker-{rank}", arguments, environ))

    async def keep_cores_busy(self) -> None:
        """Let processes that nobody has to wait for take what is left of each core.

        Else a core that sleeps between two steps takes a while to wake, and does less per second of
        its time: what a step costs would depend on how much is going on.
        """
        for core in sorted(os.sched_getaffinity(0)):
            process = ProcessSpec(
                id=f"burner-{core}",
                argv=[sys.executable, "-c", _BURNER],
                env=dict(os.environ),
                cwd=str(ROOT),
                log=self._folder / f"burner-{core}.log",
                cores=(core,),
            )
            await self._runtime.start(process)

    def _identity(self, role: str, rank: int) -> dict[str, str]:
        return {
            names.TRAINER_ADDRESS: self.address,
            names.ROLE: role,
            names.RANK: str(rank),
            names.INCARNATION: "0",
        }

    async def _start(self, name: str, arguments: list[str], environ: dict[str, str]) -> Running:
        return await self._runtime.start(
            ProcessSpec(
                id=name,
                argv=[sys.executable, "-m", "penstock.cli", *arguments],
                env={**os.environ, "OMP_NUM_THREADS": "1", names.JOB_TOKEN: TOKEN, **environ},
                cwd=str(ROOT),
                log=self._folder / f"{name}.log",
            )
        )

    @property
    def workers(self) -> int:
        """Workers that were started."""
        return len(self._workers)

    def limit(self, workers: int | None, servers: int | None) -> None:
        """Give each worker and each server so many milli-cores from now on; None: no limit."""
        for running in self._workers:
            self._runtime.set_limits(running.id, [], None, workers)
        for running in self._servers:
            self._runtime.set_limits(running.id, [], None, servers)

    async def measure(self, seconds: float) -> Measured:
        """Watch the job for a while."""
        trees = [await self._processes(each) for each in (*self._workers, *self._servers)]
        began, before = time.time(), [_cpu(tree) for tree in trees]
        await asyncio.sleep(seconds)
        ended, after = time.time(), [_cpu(tree) for tree in trees]
        cores = [
            (late - early) / (ended - began) for early, late in zip(before, after, strict=True)
        ]
        count = sum(began <= step.time_seconds < ended for step in self._log.read())
        return Measured(
            seconds=ended - began,
            steps_per_second=count / (ended - began),
            worker_cores=tuple(cores[: len(self._workers)]),
            server_cores=tuple(cores[len(self._workers) :]),
        )

    async def wait_for_steps(self, workers: int, since: float) -> None:
        """Until so many workers have trained."""

        def trained() -> bool:
            return len({s.worker for s in self._log.read() if s.time_seconds > since}) >= workers

        await self.wait_for(trained, f"{workers} workers train")

    async def wait_for(self, look: Callable[[], Any], what: str) -> Any:
        """Poll until ``look`` finds something; fails with the ends of the logs."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if found := look():
                return found
            await asyncio.sleep(0.1)
        logs = "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self._folder.glob("*.log"))
        )
        raise TimeoutError(f"{what}: not within {START_SECONDS:.0f} s\n{logs}")

    async def _processes(self, running: Running) -> list[psutil.Process]:
        return [psutil.Process(pid) for pid in await self._runtime.pids(running.id)]


def _cpu(tree: list[psutil.Process]) -> float:
    total = 0.0
    for process in tree:
        times = process.cpu_times()
        total += times.user + times.system
    return total


@asynccontextmanager
async def running_quota_job(folder: Path, servers: int) -> AsyncIterator[QuotaJob]:
    """A job with its servers and no workers; all of it is gone at the end of the block."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    async with Runtime() as runtime:
        job = QuotaJob(runtime, folder)
        await job.start_trainer(servers)
        await job.keep_cores_busy()
        yield job
