"""Frozen encoders leave the training process: what the step costs with them, and without.

    python -m benchmarks.encoders --json

A latent diffusion step at 256 pixels (`benchmarks.encoding`) on two cores: the training has one,
a data worker the other. ``step``: the data worker makes pictures, and the step encodes them, as
programs are commonly written. ``stage``: the data worker encodes them too, as a stage of the
loader. ``none``: the step alone, of what was encoded before: no program is faster. ``beside``: the
same, while a process that hands over nothing does a data worker's work for each step on the other
core: what is lost there is lost to what both cores share, whoever sends batches. Ways take turns.
``receiving_milliseconds`` are the processor's, of a step: all that the training process spends on
getting its batch, in any of its threads.
``pool``: two training processes, each with a loader of its own, and one data worker that encodes
for both.

This is the stage on CPUs. On accelerators it has not been run; there the memory that is freed is
theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

from benchmarks import programs
from benchmarks.dataplane.systems import ROOT
from benchmarks.goals import Goal, at_least, at_most, equal, report
from penstock.data.allocator import ALLOCATOR

TOKEN: Final = "a token of the benchmark"
PROGRAM: Final = (sys.executable, "-m", "benchmarks.encoding.train", "--token", TOKEN)
WORKER: Final = """
import sys
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.worker import DataWorker, work
token, *places = sys.argv[1:]
entries = tuple(
    ConsumerEntry(name=f"program {at}", address=address, local=local)
    for at, (address, local) in enumerate(zip(places[::2], places[1::2], strict=True))
)
work(DataWorker(token=token, consumers=entries))
"""
STEP_GOAL: Final = 1.03
GAIN_GOAL: Final = 1.35
LIMIT_SECONDS: Final = 600.0
BESIDE: Final = (sys.executable, "-m", "benchmarks.encoding.beside")
WAYS: Final = ("step", "stage", "none", "beside")


def trained(
    way: str, count: int, steps: int, seed: int, settled: int | None = None
) -> list[dict[str, Any]]:
    """What so many training processes with one data worker have printed.

    The first ``settled`` of their steps are not timed; None: as many as they leave out themselves.
    """
    cores = sorted(os.sched_getaffinity(0))
    other = cores[1:2] or cores[:1]
    with ExitStack() as stack:
        told, tell = os.pipe()
        stack.callback(os.close, told)
        stack.callback(os.close, tell)
        if way == "beside":
            command = [*BESIDE, "--steps", str(steps), "--told", str(told)]
            beside = _started(stack, command, other, {**os.environ, **ALLOCATOR}, told)
            _line(beside)
        training = []
        for _ in range(count):
            command = [*PROGRAM, "--way", way, "--steps", str(steps), "--seed", str(seed)]
            if settled is not None:
                command += ["--settled", str(settled)]
            if way == "beside":
                command += ["--tell", str(tell)]
            training.append(_started(stack, command, cores, None, tell))
        places = [_line(one).split(" ") for one in training]
        for one in training:
            os.sched_setaffinity(one.pid, cores[:1])
        if way in ("step", "stage"):
            command = [
                sys.executable,
                "-c",
                WORKER,
                TOKEN,
                *(word for one in places for word in one),
            ]
            _started(stack, command, other, {**os.environ, **ALLOCATOR})
        return [json.loads(_line(one)) for one in training]


def _started(
    stack: ExitStack,
    command: list[str],
    cores: list[int],
    environ: dict[str, str] | None,
    *ends: int,
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ, pass_fds=ends
    )
    stack.callback(_end, process)
    os.sched_setaffinity(process.pid, cores)
    return process


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None, "it is a pipe"
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a training process ended with {process.wait(LIMIT_SECONDS)}")
    return line.removesuffix("\n")


def _end(process: subprocess.Popen[Any]) -> None:
    programs.kill(process)
    if process.stdout is not None:
        process.stdout.close()


def run(steps: int, repeats: int, seed: int) -> tuple[dict[str, Any], list[Goal]]:
    """The figures, and their goals."""
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            found[way] += trained(way, 1, steps, seed)
    pool = trained("stage", 2, steps, seed)
    rows = [_row(way, found[way]) for way in WAYS]
    step, stage, none, beside = rows
    beside_free = round(stage["milliseconds"] / none["milliseconds"], 3)
    weights = found["stage"][0]["weight_bytes"] / 1e6
    figures: dict[str, Any] = {
        "rows": rows,
        "step_over_prefix_free": beside_free,
        "step_over_prefix_free_beside_work": round(
            beside["milliseconds"] / none["milliseconds"], 3
        ),
        "gain": round(step["milliseconds"] / stage["milliseconds"], 3),
        "limit": round(step["milliseconds"] / none["milliseconds"], 3),
        "encoder_mb": round(weights, 1),
        "resident_mb_less": round(step["resident_mb"] - stage["resident_mb"], 1),
        "pool": [_row("stage", [one]) for one in pool],
    }
    runs = [*(one for way in WAYS for one in found[way]), *pool]
    losses = runs[0]["losses"]
    goals = [
        at_most("step, by that of what is encoded before", STEP_GOAL, beside_free),
        at_least("gain over encoders in the step", GAIN_GOAL, figures["gain"]),
        at_least(
            "MB that the training process is smaller by, of the encoders' weights",
            round(weights, 1),
            figures["resident_mb_less"],
        ),
        equal(
            f"losses of {steps} steps",
            [f"run {at}" for at, one in enumerate(runs) if one["losses"] != losses],
        ),
        equal(
            "training processes that did not call the encoders themselves",
            [f"run {at}" for at, one in enumerate([*found["stage"], *pool]) if one["called_here"]],
        ),
    ]
    return figures, goals


def _row(way: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "way": way,
        "milliseconds": round(1000 * median(one for run in runs for one in run["seconds"]), 2),
        "cpu_milliseconds": round(1000 * median(run["cpu_seconds"] for run in runs), 2),
        "receiving_milliseconds": round(
            1000 * median(run["receiving_cpu_seconds"] for run in runs), 2
        ),
        "resident_mb": round(median(run["resident_bytes"] for run in runs) / 1e6, 1),
    }


def main() -> int:
    """Run it and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="of the model and the order")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    figures, goals = run(options.steps, options.repeats, options.seed)
    return report({"seed": options.seed, "load": load, **figures}, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
