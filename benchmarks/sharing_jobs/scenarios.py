"""What groups of programs go through, and a row of figures for each.

All jobs of a scenario begin at one moment, when the last of them has started; what starting costs
is the same with sharing and without. Every row counts samples of every job and epoch (``lost``,
``repeated``), what was made for all (``made``, of which ``needed`` is the least possible), the
seconds of the slowest job (``seconds_after_first``: without the wait for its first batch, while
which its pipeline is sent and compared), the longest wait for a batch since all had their first,
and what was left on the machine. Where nothing is said of
the window it is the default, which is larger than these small datasets.
"""

from __future__ import annotations

import bisect
import functools
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import psutil

from benchmarks.dataplane.workloads import BATCH as KIND_BATCH
from benchmarks.sharing_jobs.programs import (
    Found,
    Jobs,
    Program,
    Sharing,
    Stop,
    lost_and_repeated,
    run,
)
from penstock.sim.sharing.rules import Life, bound, bound_of, sliding
from penstock.sim.sharing.world import Group, times_of

BATCH: Final = 8
SAMPLE_BYTES: Final = 224 * 224 * 3
STOP_SECONDS: Final = 2.0
FAULT_SECONDS: Final = (0.5, 1.5)
"""Between two faults of the chaos."""
SECONDS_A_FAULT: Final = 3.0
"""That one takes, with the time that a program stands still and those that hit nobody."""
MAKING_TIMES: Final = 16
"""Samples of programs that wait for data all the time, by those of a short run: what they spend
until there is a first batch is not to decide."""
WORKER_PROCESS: Final = "penstock.data.worker_process"
KEEPER_PROCESS: Final = "penstock.data.share_keeper"

Row = dict[str, Any]


def window_of(program: Program, share: float, workers: int) -> int:
    """Bytes for each data worker, so that all hold a share of the dataset."""
    return max(1, int(program.samples * SAMPLE_BYTES * share / workers))


def row_of(found: Found, programs: Sequence[Program], needed: float) -> Row:
    """What every scenario tells; ``needed`` in samples."""
    lost, repeated = lost_and_repeated(found, programs)
    made = found.made()
    return {
        "jobs": len(programs),
        "made": made,
        "needed": round(needed),
        "made_by_needed": round(made / needed, 3),
        "making_cpu_seconds": round(found.making_seconds(), 2),
        "programs_cpu_seconds": round(sum(job["cpu_seconds"] for job in found.ended), 2),
        "data_workers_cpu_seconds": found.summary.get("cpu_seconds"),
        "lost": lost,
        "repeated": repeated,
        "seconds": round(max(job["seconds"] for job in found.ended), 2),
        "seconds_after_first": round(
            max(job["seconds"] - job["first_seconds"] for job in found.ended), 2
        ),
        "longest_wait": round(found.longest_wait(), 3),
        "left": len(found.left),
    }


def together(jobs: int, program: Program, seed: int, workers: int) -> Row:
    """Jobs of one speed that begin together."""
    programs = [program] * jobs
    found = run(programs, Sharing(workers), seed)
    return row_of(found, programs, program.samples * program.epochs)


def apart(
    jobs: int, program: Program, seed: int, workers: int, *, speeds: float = 0.0, joins: float = 0.0
) -> Row:
    """Jobs of several speeds, or that begin one after the other, in a small window.

    ``needed`` is the bound for the times at which they began, trained and ended, and
    ``needed_as_planned`` that for those at which they were to.
    """
    share = 0.1 if jobs <= 8 else 0.2
    tiles = program.samples // BATCH
    group = Group(
        jobs,
        tiles=tiles,
        epochs=program.epochs,
        window=max(1, round(tiles * share)),
        workers=workers,
        speeds=speeds,
        joins=joins,
        seed=seed,
    )
    programs = [
        replace(
            program,
            step_seconds=program.step_seconds * times.seconds,
            begin_after=program.step_seconds * times.begins,
        )
        for times in times_of(group)
    ]
    sharing = Sharing(workers, window_of(program, share, workers))
    found = run(programs, sharing, seed)
    planned = bound(group) * program.samples * program.epochs
    least = bound_of(lives_of(found.ended), group.window) * BATCH
    fastest = found.jobs[0]
    assert fastest is not None, "all have ended"
    busy = program.step_seconds * program.steps
    slowdown = (fastest["seconds"] - fastest["first_seconds"]) / busy - 1
    return {
        **row_of(found, programs, least),
        "needed_as_planned": round(planned),
        "data_workers": workers,
        "slowdown_of_fastest": round(slowdown, 3),
        "first_batch": round(max(job["first_seconds"] for job in found.ended), 3),
        "tf_data_would_lose": round(sliding(group).lost, 3),
    }


def lives_of(ended: Sequence[dict[str, Any]]) -> list[Life]:
    """When jobs took their batches, a tile each.

    On a machine that has more to do they begin later than was planned, and go more slowly.
    """

    def life(times: list[float]) -> Life:
        def taken(start: float, stop: float) -> float:
            """Those from ``start`` on, and of the job's last moment too."""
            before = bisect.bisect_left(times, start)
            return (len(times) if stop >= times[-1] else bisect.bisect_left(times, stop)) - before

        return Life(times[0], times[-1], taken)

    return [life(job["times"]) for job in ended]


class Faults:
    """What is done to a group, and to whom."""

    def __init__(self, jobs: Jobs, chance: random.Random) -> None:
        self._jobs = jobs
        self._chance = chance
        self.said: list[str] = []
        self.stops: list[Stop] = []
        self._killed: set[int] = set()

    def _alive(self) -> list[int]:
        return [
            number
            for number, process in enumerate(self._jobs.running)
            if number not in self._killed and process.poll() is None
        ]

    def job(self) -> None:
        """Kill -9 of a program and of what started it; the last two stay."""
        alive = self._alive()
        if len(alive) <= 2:
            return
        number = self._chance.choice(alive)
        training = self._jobs.training(number)
        self._jobs.running[number].kill()
        self._jobs.running[number].wait()
        if training is not None:
            with suppress(psutil.Error):
                training.kill()
        self._killed.add(number)
        self.said.append(f"job-{number}: killed")

    def worker(self) -> None:
        """Kill -9 of a data worker, which its keeper starts again."""
        self._kill(WORKER_PROCESS, "a data worker")

    def keeper(self) -> None:
        """Kill -9 of the group's keeper."""
        self._kill(KEEPER_PROCESS, "the keeper")

    def _kill(self, words: str, what: str) -> None:
        if found := self._jobs.processes(words):
            with suppress(psutil.Error):
                self._chance.choice(found).kill()
                self.said.append(f"{what}: killed once")

    def stop(self) -> None:
        """A program stands still for a while; it waits itself, and nobody else is to."""
        alive = self._alive()
        if not alive:
            return
        number = self._chance.choice(alive)
        training = self._jobs.training(number)
        if training is not None:
            began = time.time()
            self._stop(training, f"job-{number}")
            self.stops.append(Stop(number, began, time.time()))

    def stop_worker(self) -> None:
        """A data worker stands still for a while, and others are to be asked."""
        if found := self._jobs.processes(WORKER_PROCESS):
            self._stop(self._chance.choice(found), "a data worker")

    def _stop(self, process: psutil.Process, what: str) -> None:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
            time.sleep(STOP_SECONDS)
            process.send_signal(signal.SIGCONT)
            self.said.append(f"{what}: stopped")


def disturbed(jobs: int, program: Program, seed: int, workers: int, kinds: Sequence[str]) -> Row:
    """One fault of each kind, evenly over the run."""

    def reached(running: Jobs, at: int) -> bool:
        return max(map(running.batches, range(jobs))) >= at

    def disturb(running: Jobs) -> Faults:
        faults = Faults(running, random.Random(seed))
        for number, kind in enumerate(kinds):
            at = program.steps * (number + 1) // (len(kinds) + 1)
            running.wait_until(functools.partial(reached, running, at), 120, f"at step {at}")
            getattr(faults, kind)()
        return faults

    return _after_faults(jobs, program, seed, workers, disturb)


def chaos(jobs: int, program: Program, seed: int, workers: int, count: int) -> Row:
    """So many random faults, as long as anybody trains."""

    def disturb(running: Jobs) -> Faults:
        chance = random.Random(seed)
        faults = Faults(running, chance)
        kinds = (faults.job, faults.worker, faults.worker, faults.stop)
        while len(faults.said) < count and any(one.poll() is None for one in running.running):
            time.sleep(chance.uniform(*FAULT_SECONDS))
            chance.choice(kinds)()
        return faults

    return {**_after_faults(jobs, program, seed, workers, disturb), "wanted_faults": count}


def _after_faults(
    jobs: int, program: Program, seed: int, workers: int, disturb: Callable[[Jobs], Faults]
) -> Row:
    programs, stops = [program] * jobs, []

    def noting(running: Jobs) -> list[str]:
        faults = disturb(running)
        stops.extend(faults.stops)
        return faults.said

    found = run(programs, Sharing(workers), seed, noting)
    row = row_of(found, programs, program.samples * program.epochs)
    row["longest_wait"] = round(found.longest_wait(stops), 3)
    return {
        **row,
        "ended": len(found.ended),
        "count_of_faults": len(found.faults),
        "faults": ", ".join(found.faults),
    }


def making_bound(jobs: int, program: Program, seed: int, workers: int, kind: str) -> list[Row]:
    """Programs that wait for data all the time: plain ones, each for itself, and with sharing.

    ``samples_per_second_and_job`` is over everything from the moment that all may begin, in which
    whoever shares starts data workers; ``later_per_second_and_job`` from a job's first batch on.
    """
    program = replace(
        program,
        samples=program.samples * MAKING_TIMES,
        batch=KIND_BATCH[kind],
        step_seconds=0.0,
        kind=kind,
    )
    programs = [program] * jobs
    needed = program.samples * program.epochs
    rows = []
    for how, sharing in (
        ("each alone", Sharing(0, group=False)),
        ("shared", Sharing(workers)),
    ):
        found = run(programs, sharing, seed)
        row = {"how": how, "pipeline": kind, **row_of(found, programs, needed)}
        row["samples_per_second_and_job"] = round(needed / row["seconds"], 1)
        later = sum(
            (needed - program.batch) / (job["times"][-1] - job["times"][0]) for job in found.ended
        )
        row["later_per_second_and_job"] = round(later / len(found.ended), 1)
        cpu = row["programs_cpu_seconds"] + (row["data_workers_cpu_seconds"] or 0.0)
        row["cpu_ms_per_sample_and_job"] = round(1000 * cpu / (needed * jobs), 4)
        rows.append(row)
    return rows


def of_sizes(sizes: Sequence[int], program: Program, seed: int, workers: int) -> Row:
    """Jobs with batches of different sizes, each as long for a sample as the others."""
    least = min(sizes)
    programs = [
        replace(program, batch=size, step_seconds=program.step_seconds * size / least)
        for size in sizes
    ]
    found = run(programs, Sharing(workers), seed)
    wrong = 0
    for job, own in zip(found.ended, programs, strict=True):
        full, rest = divmod(own.samples, own.batch)
        expected = ([own.batch] * full + [rest] * bool(rest)) * own.epochs
        wrong += sorted(job["sizes"]) != sorted(expected)
    row = row_of(found, programs, program.samples * program.epochs)
    return {"batch_sizes": ",".join(map(str, sizes)), "wrong_sizes": wrong, **row}
