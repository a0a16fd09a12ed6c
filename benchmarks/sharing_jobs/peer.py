"""The same programs with ours and with tf.data service: CPU for a sample and job, all processes.

``beginning_ms`` is what is spent until there are first batches, by programs and by data workers,
which does not grow with their samples: with ours programs load its modules and have a tile
compared, and data workers load PyTorch, in that time; tf.data service's have loaded TensorFlow
before they are measured. ``later_ms`` is what a sample and job costs from then on. Both systems do
it on one machine in the way that they have for that: ours in shared memory, theirs by gRPC.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import programs
from benchmarks.dataplane.systems import ROOT, interpreter
from benchmarks.sharing_jobs.programs import COMPILED, Jobs, Program, Sharing, batches_in, run
from benchmarks.sharing_jobs.scenarios import KEEPER_PROCESS, WORKER_PROCESS, row_of
from penstock.data.allocator import ALLOCATOR

LIMIT_SECONDS: Final = 240.0
POLL_SECONDS: Final = 0.05

Row = dict[str, Any]


@dataclass(frozen=True)
class Making:
    """CPU seconds of those who make: until all programs had a batch, and after that.

    Attributes:
        before: seconds until then.
        after: seconds from then on.
        taken: samples that all programs together had got then.
    """

    before: float
    after: float
    taken: int


def rows(jobs: int, program: Program, seed: int, workers: int) -> list[Row]:
    """Ours, and theirs."""
    return [ours(jobs, program, seed, workers), theirs(jobs, program, seed)]


def figures(program: Program, programs: Sequence[dict[str, Any]], making: Making) -> Row:
    """Milliseconds of CPU for a sample and job; ``programs``: what each of them wrote."""
    jobs = len(programs)
    total = jobs * program.samples * program.epochs
    taking = sum(one["cpu_seconds"] for one in programs)
    beginning = sum(one["cpu_seconds_before_first"] for one in programs)
    later = (taking - beginning) / (total - jobs * program.batch)
    later += making.after / (total - making.taken)
    of_each = {
        "cpu_ms_per_sample_and_job": making.before + making.after + taking,
        "making_ms": making.before + making.after,
        "taking_ms": taking,
        "beginning_ms": beginning + making.before,
    }
    row = {name: round(1000 * seconds / total, 4) for name, seconds in of_each.items()}
    return {**row, "later_ms": round(1000 * later, 4)}


def ours(jobs: int, program: Program, seed: int, workers: int) -> Row:
    """As every other scenario, with the CPU of data workers while the programs run."""
    spent: list[Making] = []

    def watch(running: Jobs) -> list[str]:
        def wait(holds: Callable[[], bool], what: str) -> None:
            running.wait_until(holds, LIMIT_SECONDS, what)

        outs = [running.out(number) for number in range(jobs)]
        making = _making(lambda: _cpu_of_group(running), running.folder, jobs, program, wait)
        wait(lambda: all(out.exists() for out in outs), "done")
        spent.append(making(_cpu_of_group(running)))
        return []

    programs = [program] * jobs
    found = run(programs, Sharing(workers), seed, watch)
    row = row_of(found, programs, program.samples * program.epochs)
    return {
        "system": "penstock",
        **row,
        "lost_share": row["lost"] / (jobs * program.samples * program.epochs),
        **figures(program, found.ended, spent[0]),
    }


def _making(
    cpu: Callable[[], float],
    folder: Path,
    jobs: int,
    program: Program,
    wait: Callable[[Callable[[], bool], str], None],
) -> Callable[[float], Making]:
    """Wait until all programs have a batch; what then makes a `Making` of the CPU at the end."""
    begun = cpu()

    def taken() -> list[int]:
        return [batches_in(folder, number) for number in range(jobs)]

    wait(lambda: min(taken()) > 0, "begun")
    first, batches = cpu(), sum(taken())
    return lambda end: Making(first - begun, end - first, batches * program.batch)


def theirs(jobs: int, program: Program, seed: int) -> Row:
    """A dispatcher, a worker, and as many consumers of one endless dataset."""
    command = [interpreter("tfdata"), "-W", "ignore", "-m", "benchmarks.sharing_programs.tfdata"]
    numbers = [str(program.samples), str(program.batch), str(seed)]
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environ = {**os.environ, **ALLOCATOR, **COMPILED, **own}
    with tempfile.TemporaryDirectory(prefix="penstock-tfdata-") as place, ExitStack() as ending:
        folder = Path(place)
        wanted = {"epochs": program.epochs, "step_seconds": program.step_seconds}
        (folder / "wanted.json").write_text(json.dumps(wanted))
        log = ending.enter_context((folder / "log.txt").open("w"))

        def start(*words: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [*command, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env=environ, cwd=ROOT,
            )  # fmt: skip
            ending.callback(_end, process)
            return process

        server = start("servers", *numbers)
        target = _line(server, folder)["target"]
        consumers = [
            start("consumer", target, str(number), *numbers, place) for number in range(jobs)
        ]

        def wait(holds: Callable[[], bool], what: str) -> None:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not holds():
                if time.monotonic() > deadline or any(one.poll() is not None for one in consumers):
                    text = (folder / "log.txt").read_text()[-2000:]
                    raise RuntimeError(f"tf.data service: not {what}: {text}")
                time.sleep(POLL_SECONDS)

        wait(lambda: len(list(folder.glob("ready-*"))) == jobs, "ready")
        (folder / "go").touch()
        making = _making(lambda: _cpu_of_server(server, folder), folder, jobs, program, wait)
        found = [_line(one, folder) for one in consumers]
        spent = making(_cpu_of_server(server, folder))
    return {
        "system": "tf.data service",
        "jobs": jobs,
        "needed": program.samples * program.epochs,
        "lost_share": round(_lost([one["seen"] for one in found], program), 3),
        "seconds": round(max(one["seconds"] for one in found), 2),
        **figures(program, found, spent),
    }


def _lost(seen: list[list[int]], program: Program) -> float:
    """Share of the samples that a job does not see in what stands for an epoch."""
    missing = 0
    for one in seen:
        for start in range(0, program.samples * program.epochs, program.samples):
            missing += program.samples - len(set(one[start : start + program.samples]))
    return missing / (len(seen) * program.samples * program.epochs)


def _cpu_of_group(running: Jobs) -> float:
    total = 0.0
    for words in (WORKER_PROCESS, KEEPER_PROCESS):
        for process in running.processes(words):
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
    return total


def _cpu_of_server(server: subprocess.Popen[str], folder: Path) -> float:
    assert server.stdin is not None
    server.stdin.write("cpu\n")
    server.stdin.flush()
    return float(_line(server, folder)["cpu_seconds"])


def _line(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    """The next line of JSON; RuntimeError: the process has ended."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise RuntimeError(f"tf.data service: {(folder / 'log.txt').read_text()[-2000:]}")


def _end(process: subprocess.Popen[str]) -> None:
    programs.kill(process)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
