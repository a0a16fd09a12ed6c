"""The same programs with ours and with tf.data service: CPU for a sample and job, all processes.

``beginning_ms`` is what of ``taking_ms`` programs spend before their first batch, which does not
grow with their samples: with ours they load its modules and have a tile compared in that time,
where tf.data service's consumers have loaded TensorFlow before they are measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.dataplane.systems import ROOT, interpreter
from benchmarks.sharing_jobs.programs import Jobs, Program, Sharing, run
from benchmarks.sharing_jobs.scenarios import KEEPER_PROCESS, WORKER_PROCESS, row_of
from penstock.data.allocator import ALLOCATOR

LIMIT_SECONDS: Final = 240.0
POLL_SECONDS: Final = 0.05

Row = dict[str, Any]


def rows(jobs: int, program: Program, seed: int, workers: int) -> list[Row]:
    """Ours, and theirs."""
    return [ours(jobs, program, seed, workers), theirs(jobs, program, seed)]


def ours(jobs: int, program: Program, seed: int, workers: int) -> Row:
    """As every other scenario, with the CPU of data workers while the programs run."""
    spent = 0.0

    def watch(running: Jobs) -> list[str]:
        nonlocal spent
        before = _cpu_of_group(running)
        outs = [running.out(number) for number in range(jobs)]
        running.wait_until(lambda: all(out.exists() for out in outs), LIMIT_SECONDS, "done")
        spent = _cpu_of_group(running) - before
        return []

    programs = [program] * jobs
    found = run(programs, Sharing(workers), seed, watch)
    consumed = sum(job["cpu_seconds"] for job in found.ended)
    beginning = sum(job["cpu_seconds_before_first"] for job in found.ended)
    row = row_of(found, programs, program.samples * program.epochs)
    return {
        "system": "penstock",
        **row,
        "lost_share": row["lost"] / (jobs * program.samples * program.epochs),
        "cpu_ms_per_sample_and_job": _each(spent + consumed, jobs, program),
        "making_ms": _each(spent, jobs, program),
        "taking_ms": _each(consumed, jobs, program),
        "beginning_ms": _each(beginning, jobs, program),
    }


def theirs(jobs: int, program: Program, seed: int) -> Row:
    """A dispatcher, a worker, and as many consumers of one endless dataset."""
    command = [interpreter("tfdata"), "-W", "ignore", "-m", "benchmarks.sharing_programs.tfdata"]
    numbers = [str(program.samples), str(program.batch), str(seed)]
    environ = {**os.environ, **ALLOCATOR, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
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
        deadline = time.monotonic() + LIMIT_SECONDS
        while len(list(folder.glob("ready-*"))) < jobs:
            if time.monotonic() > deadline or any(one.poll() is not None for one in consumers):
                raise RuntimeError(f"tf.data service: {(folder / 'log.txt').read_text()[-2000:]}")
            time.sleep(POLL_SECONDS)
        before = _cpu_of_server(server, folder)
        (folder / "go").touch()
        found = [_line(one, folder) for one in consumers]
        spent = _cpu_of_server(server, folder) - before
    consumed = sum(one["cpu_seconds"] for one in found)
    beginning = sum(one["cpu_seconds_before_first"] for one in found)
    return {
        "system": "tf.data service",
        "jobs": jobs,
        "needed": program.samples * program.epochs,
        "lost_share": round(_lost([one["seen"] for one in found], program), 3),
        "seconds": round(max(one["seconds"] for one in found), 2),
        "cpu_ms_per_sample_and_job": _each(spent + consumed, jobs, program),
        "making_ms": _each(spent, jobs, program),
        "taking_ms": _each(consumed, jobs, program),
        "beginning_ms": _each(beginning, jobs, program),
    }


def _each(seconds: float, jobs: int, program: Program) -> float:
    return round(1000 * seconds / (jobs * program.samples * program.epochs), 4)


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
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
