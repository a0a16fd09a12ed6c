"""The same tf.data pipeline with tf.data alone, on Penstock's data workers, and in tf.data service.

    python -m benchmarks.tfdata --json

Pictures in TFRecord files are decoded, resized and batched by one function for all
(`benchmarks/tfdata_programs/pipeline.py`). It runs in the program (``plain``; ``penstock 0``: by
`penstock.data.tensorflow.distribute` without data workers), in two data workers of ``penstock run``
(``penstock 2``), and in two workers of the real tf.data service with dynamic sharding and without
compression (``service 2``). Then the last two once more, with a worker killed by -9 in the middle
of an epoch: how many pictures were lost or repeated, and whether the epoch ended.

CPU is that of all processes together, and what the goals are of: elements per second mean something
on a quiet machine only (``load``). Both are of the epochs after the first; each system runs
``--rounds`` times in turns, and the median counts. ``best`` names who is ahead in what.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.dataplane.systems import ROOT, beside_project, interpreter
from benchmarks.goals import Goal, at_most, report
from benchmarks.tfdata_programs.train import MARK
from penstock.data.allocator import ALLOCATOR

PROGRAM: Final = str(Path(__file__).with_name("tfdata_programs") / "train.py")
WITHOUT_TORCH: Final = Path(PROGRAM).with_name("without_torch")
LIMIT_SECONDS: Final = 600.0
SYSTEMS: Final = ("plain", "penstock 0", "penstock 2", "service 2")
GIGABYTE: Final = 1e9


def run(system: str, folder: str, epochs: int, pictures: int, *, kills: bool) -> Any:
    """The epochs of one run, in a session of its own."""
    python = interpreter("tfdata")
    name, _, workers = system.partition(" ")
    command = [python, "-W", "ignore", PROGRAM, name, folder, str(epochs), str(int(kills))]
    command.append(str(pictures))
    if name == "penstock" and workers != "0":
        code = "import sys; from penstock.cli.main import main; sys.exit(main())"
        penstock = [python, "-W", "ignore", "-c", code, "run"]
        command = [*penstock, f"--data-workers={workers}", "--", *command]
    environ = {
        **beside_project(str(WITHOUT_TORCH)),
        **ALLOCATOR,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        MARK: secrets.token_hex(8),
    }
    process = subprocess.Popen(
        command,
        env=environ,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=LIMIT_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = [line for line in output.splitlines() if line.startswith("[{")]
    if not lines:
        raise RuntimeError(f"{system}: {errors[-2000:]}")
    return json.loads(lines[-1])


def row_of(system: str, runs: list[Any]) -> dict[str, Any]:
    """Speed and cost of the epochs after the first."""
    epochs = [one for run_ in runs for one in run_[1:]]
    return {
        "system": system,
        "elements_per_second": round(median(one["elements"] / one["seconds"] for one in epochs), 1),
        "cpu_seconds_per_gb": round(
            median(one["cpu_seconds"] * GIGABYTE / one["bytes"] for one in epochs), 2
        ),
        "lost": sum(one["lost"] for run_ in runs for one in run_),
        "repeated": sum(one["repeated"] for run_ in runs for one in run_),
        "first_epoch_seconds": round(median(run_[0]["seconds"] for run_ in runs), 1),
    }


def kill_row(system: str, epoch: dict[str, Any]) -> dict[str, Any]:
    """What became of an epoch in whose middle a worker was killed."""
    return {
        "system": system,
        "lost": epoch["lost"],
        "repeated": epoch["repeated"],
        "ended": epoch["ended"],
        "longest_wait_seconds": epoch["longest_wait_seconds"],
        "error": epoch["error"],
    }


def goals_of(rows: list[dict[str, Any]], kills: list[dict[str, Any]]) -> list[Goal]:
    """Nothing lost or repeated by ours, at about the CPU of the service, and of tf.data alone."""
    of = {row["system"]: row for row in rows}
    killed = {row["system"]: row for row in kills}["penstock 2"]

    def ratio(one: str, other: str) -> float:
        return round(of[one]["cpu_seconds_per_gb"] / of[other]["cpu_seconds_per_gb"], 3)

    wrong = sum(of[one]["lost"] + of[one]["repeated"] for one in ("penstock 0", "penstock 2"))
    return [
        at_most("penstock: pictures lost or repeated", 0, wrong),
        at_most("penstock, a worker killed: lost", 0, killed["lost"]),
        at_most("penstock, a worker killed: repeated", 0, killed["repeated"]),
        Goal("penstock, a worker killed: the epoch ends", "yes", killed["ended"], killed["ended"]),
        at_most("CPU, two data workers by the service", 1.15, ratio("penstock 2", "service 2")),
        at_most("CPU, no data worker by tf.data alone", 1.25, ratio("penstock 0", "plain")),
    ]


def best(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Who is ahead, of those with workers."""
    with_workers = [row for row in rows if row["system"].endswith(" 2")]
    fastest = max(with_workers, key=lambda row: row["elements_per_second"])
    cheapest = min(with_workers, key=lambda row: row["cpu_seconds_per_gb"])
    return {"elements_per_second": fastest["system"], "cpu_seconds_per_gb": cheapest["system"]}


def main(arguments: list[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="printed; the pipeline draws nothing")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--pictures", type=int, default=512, help="of each file")
    parser.add_argument("--epochs", type=int, default=2, help="the first one is not timed")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args(arguments)
    load, begun = [os.getloadavg()[0]], time.monotonic()
    pictures = options.files * options.pictures
    runs: dict[str, list[Any]] = {system: [] for system in SYSTEMS}
    with tempfile.TemporaryDirectory() as folder:
        write = [interpreter("tfdata"), "-W", "ignore", PROGRAM, "write", folder]
        write += [str(options.files), str(options.pictures)]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run(write, env=environ, cwd=ROOT, check=True)
        for _ in range(options.rounds):
            for system, found in runs.items():
                found.append(run(system, folder, options.epochs, pictures, kills=False))
        kills = [
            kill_row(system, run(system, folder, 2, pictures, kills=True)[-1])
            for system in ("penstock 2", "service 2")
        ]
    load.append(os.getloadavg()[0])
    rows = [row_of(system, found) for system, found in runs.items()]
    result = {
        "seed": options.seed,
        "load": load,
        "seconds": round(time.monotonic() - begun, 1),
        "pictures": pictures,
        "rows": rows,
        "killed": kills,
        "best": best(rows),
    }
    return report(result, goals_of(rows, kills), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
