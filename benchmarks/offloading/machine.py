"""One environment while it is entered: a training program, its data workers, and a dispatcher.

The program runs under Penstock's hook and is told what to train, run by run. Data workers connect
over TCP, as between two nodes. A second program, without Penstock, is there if it is asked for.
Everything is ended with the environment, and nobody is waited for without limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.offloading.cases import Environment, Workload
from benchmarks.programs import HOG
from penstock.crds import environment as names
from penstock.data.allocator import ALLOCATOR
from penstock.data.job_input import JobInput
from penstock.data.protocol import ConsumerReport
from penstock.data.standalone import LocalDataPlane
from penstock.throughput.profiles.profile import Profile

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = ROOT / "benchmarks" / "offload_programs" / "train.py"
DATA_WORKER: Final = (
    "from penstock.data.worker_process import run; run(None, share_memory=False, log_format='text')"
)
BEGIN_SECONDS: Final = 60.0
EXTRA_SECONDS: Final = 30.0
"""A run may take so much longer than it says."""
END_SECONDS: Final = 8.0
LOOK_SECONDS: Final = 0.25
SKIPPED_SECONDS: Final = 0.5
CALIBRATION, JUDGED = 0, 1


@dataclass(frozen=True)
class Run:
    """What a program said of one run; rates are batches a second, the rest is of a batch.

    Attributes:
        waited: share of the time.
        remote: share that data workers made.
        training_cpu: seconds of the training process.
        local_busy: seconds of local workers.
        workers: data workers that were connected.
    """

    rate: float
    waited: float
    remote: float
    training_cpu: float
    local_busy: float
    workers: float


class Machine:
    """See the module's docstring.

    Attributes:
        environment: which.
        workers: data workers that there are now.
    """

    def __init__(
        self,
        environment: Environment,
        workloads: list[Workload],
        folder: Path,
        seed: int,
        *,
        beside_alone: bool = False,
    ) -> None:
        self.environment = environment
        self.workers = 0
        self._folder = folder
        self._seed = seed
        self._runs = 0
        self._beside_alone = beside_alone
        self._workloads = workloads
        plain = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
        more = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT)}
        self._environ = {**plain, **ALLOCATOR, **more}
        token = {names.JOB_TOKEN: secrets.token_hex(16)}
        self._plane = LocalDataPlane(0, environ={**self._environ, **token})
        self._token = token
        self._data_workers: list[asyncio.subprocess.Process] = []
        self._others: list[asyncio.subprocess.Process] = []
        self._pipes: list[int] = []
        self._program: asyncio.subprocess.Process | None = None
        self._alone: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self._plane.__aenter__()
        try:
            await self._begin()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def _begin(self) -> None:
        permits = self.environment.permits()
        for name, count in permits.items():
            os.mkfifo(self._folder / name)
            self._pipes.append(os.open(self._folder / name, os.O_RDWR))
            os.write(self._pipes[-1], b"." * count)
        setup = {
            "folder": str(self._folder),
            "seed": self._seed,
            "permits": permits,
            "workloads": {one.name: self._setup(one) for one in self._workloads},
        }
        path = self._folder / "setup.json"
        path.write_text(json.dumps(setup))
        command = [sys.executable, str(SCRIPT), "--setup", str(path)]
        self._program = await self._start(command, self._plane.environ(), 0, asked=True)
        if self._beside_alone:
            self._alone = await self._start(command, self._environ, 0, asked=True)
        if self.environment.neighbour:
            await self._start([*HOG], self._environ, 1)
        for program in (self._program, self._alone):
            if program is not None:
                await _answer(program, BEGIN_SECONDS)

    def _setup(self, workload: Workload) -> dict[str, Any]:
        found = self.environment.setup(workload)
        if self.environment.cold:
            path = self._folder / "stored"
            if not path.exists():
                path.write_bytes(os.urandom(64 << 20))
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
            found["stored"] = str(path)
        return found

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        everybody = [*self._data_workers, *self._others]
        for process in everybody:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await asyncio.gather(*(process.wait() for process in everybody))
        for process in everybody:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for pipe in self._pipes:
            os.close(pipe)
        await self._plane.__aexit__(kind, error, trace)

    async def _start(
        self, command: list[str], environ: dict[str, str], core: int, *, asked: bool = False
    ) -> asyncio.subprocess.Process:
        """A process: on one core of real environments, which are the first and the second."""
        if self.environment.kind == "real":
            cores = sorted(os.sched_getaffinity(0))
            command = ["taskset", "-c", str(cores[core % len(cores)]), *command]
        pipe = asyncio.subprocess.PIPE if asked else asyncio.subprocess.DEVNULL
        errors = (self._folder / "errors").open("ab")
        with errors:
            process = await asyncio.create_subprocess_exec(
                *command, env=environ, stdin=pipe, stdout=pipe, stderr=errors, cwd=ROOT
            )
        if environ.get("OFFLOAD_SIDE") != "remote":
            self._others.append(process)
        return process

    async def set_workers(self, count: int) -> None:
        """Have so many data workers, and wait until they are there.

        Raises:
            TimeoutError: they do not come, or do not go.
        """
        environ = {
            **self._environ,
            **self._token,
            names.DATA_ADDRESS: self._plane.address,
            "OFFLOAD_SIDE": "remote",
        }
        while len(self._data_workers) < count:
            command = [sys.executable, "-c", DATA_WORKER]
            self._data_workers.append(await self._start(command, environ, 1))
        surplus = self._data_workers[count:]
        del self._data_workers[count:]
        for process in surplus:
            process.terminate()
        async with asyncio.timeout(BEGIN_SECONDS):
            for process in surplus:
                await process.wait()
            while (await self.run(self._workloads[0].name, None, 0.3)).workers != count:
                pass  # a run takes a while, and more where they do not come
        self.workers = count

    async def run(
        self,
        workload: str,
        share: float | None,
        seconds: float,
        *,
        half: int = CALIBRATION,
        alone: bool = False,
    ) -> Run:
        """Train for so long.

        Args:
            workload: by name.
            share: that data workers are to make; None: whoever is faster makes more.
            seconds: that are counted.
            half: of the samples.
            alone: the program without Penstock.

        Raises:
            TimeoutError: the program hangs.
            RuntimeError: it has ended.
        """
        program = self._alone if alone else self._program
        assert program is not None, "enter it first"
        assert program.stdin is not None, "it is asked"
        self._runs += 1
        order = {
            "workload": workload,
            "share": share,
            "seconds": seconds,
            "skipped": SKIPPED_SECONDS,
            "half": half,
            "seed": 1000 * self._seed + self._runs,
        }
        program.stdin.write(json.dumps(order).encode() + b"\n")
        try:
            answer = await _answer(program, seconds + EXTRA_SECONDS)
        except RuntimeError as error:
            text = (self._folder / "errors").read_text()
            raise RuntimeError(f"{error}: {text[-2000:]}") from None
        return Run(**answer)

    async def profile(self, workload: str, seconds: float) -> tuple[Profile | None, Run]:
        """What a job's trainer makes of the reports, while nothing is made by data workers."""
        found, seen = JobInput(workload), None
        running = asyncio.create_task(self.run(workload, 0.0, seconds))
        while not running.done():
            await asyncio.wait([running], timeout=LOOK_SECONDS)
            now = time.monotonic()
            reports: list[ConsumerReport] = self._plane.dispatcher.consumers(now)
            found.note(reports, 0, now)
            seen = found.profile(1.0) or seen
        return seen, running.result()


async def _answer(program: asyncio.subprocess.Process, limit: float) -> dict[str, Any]:
    assert program.stdout is not None, "it answers"
    async with asyncio.timeout(limit):
        line = await program.stdout.readline()
    if not line:
        raise RuntimeError("the program has ended")
    found: dict[str, Any] = json.loads(line)
    return found
