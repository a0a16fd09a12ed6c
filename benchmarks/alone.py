"""Whether a program is as fast under Penstock as alone, and gets the same batches.

    python -m benchmarks.alone --json

Eight PyTorch programs that know nothing of Penstock (`alone_programs/train.py` with the options of
`PROGRAMS`): map-style and iterable, 0 to 8 workers, batches of 64 KB and of 150 MB, pinned and not,
waiting for storage or computing, half of them augmenting. Each runs alone, under ``penstock run
--data-workers 0`` and under ``--data-workers 2``, in mirrored turns (A B C, C B A, ...), so that
what else the machine does falls on all of them. ``ratio`` is the speed under Penstock by that of
the run alone in the same turn, mean and 95 % interval; the program takes its times itself, from
before its first ``iter(loader)``: starting workers counts, importing PyTorch does not.
``steady_ratio`` is from the second epoch on. ``cpu_ratio`` is the CPU time of the whole run, both
ends and imports, by that of the run alone. All have the same allocator and one thread per process.

Every program begins with a few seconds over a loader of its own, in which data workers start, as
they have started already where a job has trained for a while.

Batches are compared in runs of their own, byte by byte: with the program alone where nothing is
drawn, and among each other where something is: 0 and 2 data workers, ``num_workers`` 0, 2 and 5.
Where an iterable dataset draws, what is drawn depends on its number of workers with PyTorch alone
too: there runs with as many workers are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from subprocess import PIPE, Popen
from tempfile import TemporaryFile
from threading import Timer
from typing import Any, Final

from benchmarks.goals import Goal, Interval, at_least, equal, interval_of, report, table
from benchmarks.programs import PENSTOCK
from penstock.data.allocator import ALLOCATOR

SCRIPT: Final = Path(__file__).with_name("alone_programs") / "train.py"
LARGE: Final = 150 << 20
RUN_SECONDS: Final = 600.0
ALONE: Final = -1
"""In the place of a number of data workers: without Penstock."""
SYSTEMS: Final = (ALONE, 0, 2)
OTHER_WORKERS: Final = (0, 2, 5)


@dataclass(frozen=True)
class Program:
    """One of the programs, by its options.

    Attributes:
        waits: for storage, rather than filling the cores.
        samples: of an epoch, unless the command says otherwise.
    """

    name: str
    workers: int
    waits: bool
    samples: int
    iterable: bool = False
    augment: bool = False
    batch_bytes: int = 64 << 10
    more: tuple[str, ...] = ()

    def options(self, samples_share: float, seed: int, workers: int | None = None) -> list[str]:
        """Its command line; with another number of workers than its own if one is given."""
        number = self.workers if workers is None else workers
        more = [one for one in self.more if number or one != "--persistent"]
        return [
            f"--workers={number}",
            f"--samples={max(32, round(self.samples * samples_share))}",
            f"--batch-bytes={self.batch_bytes}",
            f"--seed={seed}",
            *(["--iterable"] if self.iterable else []),
            *(["--augment"] if self.augment else []),
            *more,
        ]


PROGRAMS: Final = (
    Program("map-0-small-busy", 0, False, 1536, more=("--decodings=4", "--step-ms=1")),
    Program("map-2-small-busy", 2, False, 2560, augment=True, more=("--decodings=4", "--pin")),
    Program("map-4-small-waits", 4, True, 2560, augment=True, more=("--wait-ms=3",)),
    Program(
        "map-8-small-waits", 8, True, 4096, more=("--wait-ms=4", "--step-ms=2", "--pin",
                                                  "--persistent")
    ),
    Program(
        "map-2-large-waits", 2, True, 128, batch_bytes=LARGE, more=("--wait-ms=30", "--pin")
    ),
    Program(
        "map-4-large-busy", 4, False, 128, augment=True, batch_bytes=LARGE, more=("--decodings=8",)
    ),
    Program("iterable-2-small-busy", 2, False, 2560, iterable=True, more=("--decodings=4",)),
    Program(
        "iterable-8-large-waits", 8, True, 256, iterable=True, augment=True, batch_bytes=LARGE,
        more=("--wait-ms=60",),
    ),
)  # fmt: skip  # one program after the other


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes:
        printed: its figures; empty if it ended without.
        cpu_seconds: of all its processes.
        failure: its exit code and the end of what it said, where it did not end well.
    """

    printed: dict[str, Any]
    cpu_seconds: float
    failure: str = ""

    @property
    def batches(self) -> str:
        """Order and content of all its batches, in one word."""
        return f"{self.printed.get('order')}-{self.printed.get('content')}"

    def ratio(self, alone: Run, figure: str) -> float | None:
        """Its speed by that of another run; None where one of them has none."""
        name = f"{figure}_steps_per_second"
        ours, theirs = self.printed.get(name), alone.printed.get(name)
        return ours / theirs if ours and theirs else None


def run(data_workers: int, options: Sequence[str]) -> Run:
    """Run the program to its end; one that hangs is ended."""
    command = [sys.executable, str(SCRIPT), *options]
    if data_workers != ALONE:
        command = [PENSTOCK, "run", f"--data-workers={data_workers}", "--", *command]
    environ = {name: value for name, value in os.environ.items() if "PENSTOCK" not in name}
    # pin_memory without an accelerator, and more workers than cores, each get a warning.
    environ |= {**ALLOCATOR, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with TemporaryFile("w+") as errors:
        with Popen(command, stdout=PIPE, stderr=errors, text=True, env=environ) as process:
            assert process.stdout is not None
            limit = Timer(RUN_SECONDS, process.terminate)
            limit.start()
            lines = process.stdout.read().splitlines()
            limit.cancel()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        printed = json.loads(lines[-1]) if lines else {}
        failure = ""
        if process.returncode or not printed:
            errors.seek(0)
            failure = f"exit code {process.returncode}: {errors.read()[-1500:]}"
    return Run(printed, usage.ru_utime + usage.ru_stime, failure)


def measure(program: Program, pairs: int, share: float, warm: float, seed: int) -> dict[str, Any]:
    """A program's row: how fast it is with data workers and without, beside alone."""
    taken: dict[int, list[Run]] = {system: [] for system in SYSTEMS}
    for turn in range(pairs):
        for system in SYSTEMS if turn % 2 == 0 else reversed(SYSTEMS):
            options = [*program.options(share, seed), f"--warm-seconds={warm}"]
            taken[system].append(run(system, options))
    alone = taken[ALONE]
    rates = [one.printed["total_steps_per_second"] for one in alone if one.printed]
    row: dict[str, Any] = {
        "program": program.name,
        "waits": program.waits,
        "alone_steps_per_second": round(mean(rates), 2) if rates else None,
    }
    for system in SYSTEMS[1:]:
        turns = list(zip(taken[system], alone, strict=True))
        ratios = [ratio for a, b in turns if (ratio := a.ratio(b, "total")) is not None]
        steady = [ratio for a, b in turns if (ratio := a.ratio(b, "steady")) is not None]
        found = interval_of(ratios) if ratios else None
        row |= {
            f"ratio_{system}": found.mean if found else None,
            f"interval_{system}": [found.low, found.high] if found else None,
            f"pairs_{system}": [round(one, 3) for one in ratios],
            f"steady_ratio_{system}": round(mean(steady), 3) if steady else None,
            f"cpu_ratio_{system}": round(mean(a.cpu_seconds / b.cpu_seconds for a, b in turns), 3),
        }
    ran = [one for runs in taken.values() for one in runs]
    row["order_equal"] = len({one.printed.get("order") for one in ran}) == 1
    row["failures"] = [one.failure for one in ran if one.failure]
    return row


def compare_batches(program: Program, share: float, warm: float, seed: int) -> dict[str, Any]:
    """A program's batches, whole: which runs had others than they are to have."""

    failures: list[str] = []

    def batches(data_workers: int, workers: int | None = None) -> str:
        more = ["--whole", "--epochs=2", f"--warm-seconds={warm if data_workers > 0 else 0}"]
        done = run(data_workers, [*program.options(share, seed, workers), *more])
        failures.extend([done.failure] if done.failure else [])
        return done.batches

    alone = batches(ALONE)
    found = {f"data workers {count}": batches(count) for count in SYSTEMS[1:]}
    if program.augment and not program.iterable:
        found |= {f"num_workers {count}": batches(0, count) for count in OTHER_WORKERS}
    wanted = found["data workers 0"] if program.augment else alone
    return {
        "program": program.name,
        "draws": program.augment,
        "compared_with": "data workers 0" if program.augment else "alone",
        "runs": len(found),
        "as_alone": [name for name, one in found.items() if one == alone],
        "differing": [name for name, one in found.items() if one != wanted],
        "another_order": [
            name for name, one in found.items() if one.split("-")[0] != alone.split("-")[0]
        ],
        "failures": failures,
    }


def goals_of(rows: Sequence[dict[str, Any]], compared: Sequence[dict[str, Any]]) -> list[Goal]:
    """What was to be reached."""
    goals = [
        equal("every run ends well", (r["program"] for r in [*rows, *compared] if r["failures"]))
    ]
    pairs = [ratio for row in rows for ratio in row["pairs_0"]]
    without = interval_of(pairs) if pairs else Interval(0.0, None, None, 0)
    goals.append(at_least("without data workers, mean of the ratio", 0.99, without.mean))
    goals.append(at_least("without data workers, lower end of its interval", 0.97, without.low))
    for waits, bound, what in ((True, 1.0, "batches wait"), (False, 0.98, "cores are full")):
        ratios = [ratio for row in rows if row["waits"] is waits for ratio in row["pairs_2"]]
        if ratios:
            name = f"with two data workers where {what}, mean of the ratio"
            goals.append(at_least(name, bound, interval_of(ratios).mean))
    order = {row["program"] for row in rows if not row["order_equal"]}
    order |= {row["program"] for row in compared if row["another_order"]}
    goals.append(equal("order as alone", order))
    for draws, what in ((False, "bits as alone where nothing is drawn"),
                        (True, "bits alike where something is drawn")):  # fmt: skip  # a table
        differing = {r["program"] for r in compared if r["differing"] and r["draws"] is draws}
        if any(row["draws"] is draws for row in compared):
            goals.append(equal(what, differing))
    return goals


def main() -> int:
    names = [program.name for program in PROGRAMS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(names), help="some of them")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--warm-seconds", type=float, default=4.0)
    parser.add_argument("--samples-share", type=float, default=1.0, help="of each epoch's samples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    wanted = options.programs.split(",")
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"--programs: {unknown}; choose from {', '.join(names)}")
    programs = [program for program in PROGRAMS if program.name in wanted]
    random.Random(options.seed).shuffle(programs)
    load = [os.getloadavg()[0]]
    share, warm, seed = options.samples_share, options.warm_seconds, options.seed
    rows, compared = [], []
    for program in programs:
        rows.append(measure(program, options.pairs, share, warm, seed))
        print(table(rows[-1:]), file=sys.stderr, flush=True)
        load.append(os.getloadavg()[0])
    for program in programs:
        compared.append(compare_batches(program, min(share, 0.25), warm, seed))
        print(table(compared[-1:]), file=sys.stderr, flush=True)
        load.append(os.getloadavg()[0])
    result = {"seed": seed, "load": load, "pairs": options.pairs, "rows": rows, "batches": compared}
    return report(result, goals_of(rows, compared), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
