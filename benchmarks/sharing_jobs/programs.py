"""Programs that share on this machine: started together, watched, and judged by what they saw."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.kill import leftovers, shared_memory
from benchmarks.programs import PENSTOCK
from penstock.data.allocator import ALLOCATOR

ROOT: Final = Path(__file__).parents[2]
GROUP: Final = "benchmark"
START_SECONDS: Final = 240.0
END_SECONDS: Final = 30.0
END_SECONDS_EACH: Final = 1.0
"""More for each program: they all end at one moment, and three processes of each with them."""
PROGRAM_BYTES: Final = 270 << 20
"""Of a program and of what started it, PyTorch included, that no other has too (measured: 263)."""
POLL_SECONDS: Final = 0.05
COMPILED: Final = {"PYTHONDONTWRITEBYTECODE": ""}
"""What is installed is compiled once, and not in each process."""
MARK: Final = "PENSTOCK_KILL_RUN"
"""Variable by which `benchmarks.kill.leftovers` knows the processes of a run."""


@dataclass(frozen=True)
class Program:
    """What one job does.

    Attributes:
        samples: of an epoch.
        batch: samples of a step.
        epochs: that it trains.
        step_seconds: that a step sleeps.
        begin_after: seconds after all are ready.
        kind: one of `benchmarks.dataplane.workloads`.
    """

    samples: int
    batch: int
    epochs: int
    step_seconds: float
    begin_after: float = 0.0
    kind: str = "jpeg"

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return self.epochs * -(-self.samples // self.batch)


@dataclass(frozen=True)
class Sharing:
    """How they share; ``group`` False: each has data workers of its own."""

    data_workers: int = 1
    window_bytes: int = 0
    order: str = "free"
    group: bool = True


@dataclass(frozen=True)
class Stop:
    """A program stood still: its number, and from when until when."""

    job: int
    began: float
    ended: float

    def overlaps(self, job: int, began: float, ended: float) -> bool:
        """Whether it stood still at any time of a wait."""
        return job == self.job and began <= self.ended and self.began <= ended


@dataclass
class Found:
    """What came of a group.

    Attributes:
        jobs: what each program wrote; None: it did not end.
        costs: CPU seconds of each making, by its number.
        summary: what the group's keeper wrote.
        left: processes and shared memory that were there afterwards.
        faults: what was done to whom.
        log: what the programs said.
    """

    jobs: list[dict[str, Any] | None]
    costs: dict[int, float] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    log: str = ""

    @property
    def ended(self) -> list[dict[str, Any]]:
        """Those that came to their end."""
        return [job for job in self.jobs if job is not None]

    def made(self) -> int:
        """Samples that were made, but for those that nobody took (to compare pipelines)."""
        return len(self._taken())

    def making_seconds(self) -> float:
        """CPU seconds of making them."""
        return sum(self.costs.get(number, 0.0) for number in self._taken())

    def longest_wait(self, stops: Collection[Stop] = ()) -> float:
        """Of any program for a batch, when all had their first, but for those that it stood still.

        ``stops``: who stood still when; a wait that began or ended meanwhile is not counted.
        """
        begun = max(job["first_at"] for job in self.ended)
        waits = [
            seconds
            for number, job in enumerate(self.jobs)
            if job is not None
            for until, seconds in job["waits"]
            if until - seconds >= begun
            and not any(one.overlaps(number, until - seconds, until) for one in stops)
        ]
        return max(waits, default=0.0)

    def _taken(self) -> set[int]:
        return {number for job in self.ended for number in job["made"]}


def most_programs() -> int:
    """How many there is memory for now."""
    return int(psutil.virtual_memory().available // PROGRAM_BYTES)


def batches_in(folder: Path, number: int) -> int:
    """How many batches a program has got, as it writes it into its group's folder."""
    with suppress(OSError, ValueError):
        return int((folder / f"job-{number}.batches").read_text())
    return 0


def costs_of(path: Path) -> dict[int, float]:
    """What programs and data workers wrote of their makings; a line that is cut off is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        words = line.split()
        if len(words) == 3:
            found[int(words[1])] = float(words[2])
    return found


def lost_and_repeated(found: Found, programs: Sequence[Program]) -> tuple[int, int]:
    """Over all epochs of the jobs that ended."""
    lost = repeated = 0
    for job, program in zip(found.jobs, programs, strict=True):
        for epoch in job["epochs"] if job is not None else ():
            count = Counter(epoch)
            lost += sum(count[index] == 0 for index in range(program.samples))
            repeated += sum(number - 1 for number in count.values())
    return lost, repeated


class Jobs:
    """Programs that run."""

    def __init__(
        self, folder: Path, programs: Sequence[Program], sharing: Sharing, seed: int
    ) -> None:  # fmt: skip
        self.folder = folder
        self.programs = programs
        self._sharing = sharing
        self._seed = seed
        self._log = (folder / "log.txt").open("w")
        self.environ = {
            **os.environ,
            **ALLOCATOR,
            **COMPILED,
            "XDG_RUNTIME_DIR": str(folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
            MARK: str(folder),
        }
        self.running = [self._start(number) for number in range(len(programs))]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        program, sharing = self.programs[number], self._sharing
        command = [PENSTOCK, "run", "--data-workers", str(sharing.data_workers)]
        if not sharing.data_workers:
            command = []  # plain PyTorch
        if sharing.group:
            command += ["--share", GROUP, "--share-order", sharing.order]
            if sharing.window_bytes:
                command += ["--share-window", str(sharing.window_bytes)]
        command += [
            *(["--"] if command else []),
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "benchmarks.sharing_programs.train",
        ]
        command += ["--out", str(self.out(number)), "--go", str(self.folder / "go")]
        command += ["--log", str(self.folder / "costs.txt")]
        for name in ("samples", "batch", "epochs", "step_seconds", "begin_after", "kind"):
            command += [f"--{name.replace('_', '-')}", str(getattr(program, name))]
        command += ["--seed", str(self._seed * 1000 + number)]
        return subprocess.Popen(
            command,
            env=self.environ,
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def out(self, number: int) -> Path:
        """What a program writes at its end."""
        return self.folder / f"job-{number}.json"

    def batches(self, number: int) -> int:
        """That a program has got."""
        return batches_in(self.folder, number)

    def begin(self) -> None:
        """Let all begin, when all are ready.

        Raises:
            RuntimeError: they do not become so.
        """
        files = [self.out(number).with_suffix(".ready") for number in range(len(self.programs))]
        self.wait_until(lambda: all(file.exists() for file in files), START_SECONDS, "ready")
        (self.folder / "go").touch()

    def wait_until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Raises RuntimeError: it does not, or a program failed."""
        deadline = time.monotonic() + seconds
        while not holds():
            failed = [one.returncode for one in self.running if one.poll()]
            if time.monotonic() > deadline or any(code > 0 for code in failed):
                text = (self.folder / "log.txt").read_text()[-3000:]
                raise RuntimeError(f"not {what} in {seconds:.0f} s, or failed {failed}: {text}")
            time.sleep(POLL_SECONDS)

    def processes(self, words: str) -> list[psutil.Process]:
        """The group's processes with these words in their command."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                marked = process.environ().get(MARK) == str(self.folder)
                if marked and words in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def training(self, number: int) -> psutil.Process | None:
        """The process that trains, below ``penstock run``."""
        text = f"--out {self.out(number)}"
        found = [one for one in self.processes(text) if "penstock run" not in _command(one)]
        return found[-1] if found else None

    def end_group(self) -> dict[str, Any]:
        """Tell the group's keeper to end now, and read what it wrote."""
        keepers = self.processes("penstock.data.share_keeper")
        for keeper in keepers:
            with suppress(psutil.Error):
                keeper.send_signal(signal.SIGTERM)
        psutil.wait_procs(keepers, END_SECONDS)
        path = self.folder / "penstock" / "share" / GROUP / "last.json"
        if not path.exists():
            return {}
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def end(self) -> None:
        """Stop what still runs."""
        for process in self.running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._log.close()


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


@contextmanager
def started(programs: Sequence[Program], sharing: Sharing, seed: int) -> Iterator[Jobs]:
    """Programs that are ready, and ended in any case."""
    with tempfile.TemporaryDirectory(prefix="penstock-sharing-") as folder:
        Path(folder).chmod(0o700)
        jobs = Jobs(Path(folder), programs, sharing, seed)
        try:
            jobs.begin()
            yield jobs
        finally:
            jobs.end()
            jobs.end_group()


def run(
    programs: Sequence[Program],
    sharing: Sharing,
    seed: int,
    disturb: Callable[[Jobs], list[str]] | None = None,
    *,
    limit_seconds: float = 240.0,
) -> Found:
    """Run programs to their end.

    Args:
        programs: the jobs.
        sharing: how they share.
        seed: of their shuffles.
        disturb: what is done meanwhile; says it, and which jobs are not to end ("job-2: killed").
        limit_seconds: after they began.

    Raises:
        RuntimeError: a job failed, or took too long.
    """
    before = shared_memory()
    with started(programs, sharing, seed) as jobs:
        faults = disturb(jobs) if disturb is not None else []
        dead = {number for number in range(len(programs)) if f"job-{number}: killed" in faults}
        alive = [number for number in range(len(programs)) if number not in dead]
        jobs.wait_until(
            lambda: all(jobs.out(number).exists() for number in alive), limit_seconds, "done"
        )
        for number in alive:
            jobs.running[number].wait(END_SECONDS + END_SECONDS_EACH * len(programs))
        summary, mark = jobs.end_group(), str(jobs.folder)
        log = (jobs.folder / "log.txt").read_text()
        costs = costs_of(jobs.folder / "costs.txt")
        outs = [jobs.out(number) for number in range(len(programs))]
        found = [json.loads(out.read_text()) if out.exists() else None for out in outs]
    return Found(found, costs, summary, leftovers(mark, before), faults, log)
