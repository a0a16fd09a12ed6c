"""Datasets that are iterated, with workers that are killed and others that join: exact counts?

    python -m benchmarks.iterable --json

A tar stream of WebDataset and a streamed dataset of Hugging Face, made here, are each read for
three epochs by a program that knows nothing of Penstock (`benchmarks/iterable_programs/train.py`,
three workers): alone, and under ``penstock run --data-workers 2`` while a data worker or a local
worker is killed every few seconds (a data worker that is gone is started again, and joins). Each
sample must be seen once in every epoch, in the order of the program alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.goals import Goal, at_least, equal, report
from benchmarks.programs import PENSTOCK

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("iterable_programs") / "train.py"
DEADLINE_SECONDS = 300.0
KINDS = ("tar", "hugging-face")


def make_tar(folder: Path, files: int, samples: int) -> None:
    """Tar files of samples that are numbered through."""
    import webdataset

    for file in range(files):
        with webdataset.TarWriter(str(folder / f"{file:03d}.tar")) as writer:
            for value in range(file * samples, (file + 1) * samples):
                array = np.full(256, value, np.float32)
                writer.write({"__key__": f"{value:06d}", "npy": array, "cls": value})


def make_parquet(folder: Path, files: int, samples: int) -> None:
    """Parquet files of samples that are numbered through."""
    import datasets

    datasets.disable_progress_bars()
    for file in range(files):
        values = list(range(file * samples, (file + 1) * samples))
        table = datasets.Dataset.from_dict({"value": values})
        table.to_parquet(str(folder / f"{file:03d}.parquet"))


class Killer(threading.Thread):
    """Kills a data worker or a local worker of a program, now and then, until it is told to end."""

    def __init__(self, root: int, seed: int, pause: float) -> None:
        super().__init__(daemon=True)
        self.kills: dict[str, int] = {"data worker": 0, "local worker": 0}
        self._root, self._random, self._pause = root, random.Random(seed), pause
        self._stop_event = threading.Event()

    def run(self) -> None:
        """See the class's docstring."""
        while not self._stop_event.wait(self._pause * (0.5 + self._random.random())):
            kind, victim = self._choose()
            if victim is None:
                continue
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.kills[kind] += 1

    def end(self) -> None:
        """Kill nobody any more."""
        self._stop_event.set()
        self.join()

    def _choose(self) -> tuple[str, int | None]:
        kind = self._random.choice(sorted(self.kills))
        found = []
        try:
            for process in psutil.Process(self._root).children(recursive=True):
                line = process.cmdline()
                parent = process.parent()
                data = "penstock.data.worker_process" in line
                local = str(SCRIPT) in line and parent is not None and parent.cmdline() == line
                if data if kind == "data worker" else local:
                    found.append(process.pid)
        except psutil.Error:
            return kind, None
        return kind, self._random.choice(found) if found else None


def run(command: list[str], killer_seed: int | None, pause: float) -> dict[str, Any]:
    """Run the program to its end: what it saw in each epoch, and who was killed."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ, cwd=ROOT
        )
        killer = None if killer_seed is None else Killer(process.pid, killer_seed, pause)
        if killer is not None:
            killer.start()
        try:
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            output, _ = process.communicate()
        finally:
            if killer is not None:
                killer.end()
        errors.seek(0)
        said = errors.read()
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {
        "rows": rows,
        "code": process.returncode,
        "kills": {} if killer is None else killer.kills,
        "said": said[-2000:],
    }


def measure(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """One dataset: alone, and with kills."""
    with tempfile.TemporaryDirectory() as folder:
        make = make_tar if kind == "tar" else make_parquet
        make(Path(folder), options.files, options.samples)
        program = [str(SCRIPT), "--kind", kind, "--data", folder]
        program += ["--epochs", str(options.epochs), "--seconds", str(options.seconds)]
        penstock = [PENSTOCK, "run", "--data-workers=2", "--"]
        alone = run([sys.executable, *program], None, 0.0)
        ours = run([*penstock, sys.executable, *program], options.seed, options.pause)
    wanted = options.files * options.samples
    lost = sum(wanted - row["different"] for row in ours["rows"])
    repeated = sum(row["samples"] - row["different"] for row in ours["rows"])
    missing = options.epochs - len(ours["rows"])
    row = {
        "dataset": kind,
        "samples": wanted,
        "epochs": len(ours["rows"]),
        "lost": lost + missing * wanted,
        "repeated": repeated,
        "order_as_alone": [one["order"] for one in ours["rows"]]
        == [one["order"] for one in alone["rows"]],
        "alone_lost": sum(wanted - row["different"] for row in alone["rows"]),
        "killed_data_workers": ours["kills"]["data worker"],
        "killed_local_workers": ours["kills"]["local worker"],
        "seconds_alone": round(sum(one["seconds"] for one in alone["rows"]), 2),
        "seconds": round(sum(one["seconds"] for one in ours["rows"]), 2),
    }
    if ours["code"] or alone["code"]:
        row["failure"] = ours["said"] if ours["code"] else alone["said"]
    return row


def goals_of(rows: list[dict[str, Any]], least_kills: int) -> list[Goal]:
    """Nothing lost, nothing repeated, the order of the program alone, and somebody was killed."""
    return [
        equal("no sample is lost", (row["dataset"] for row in rows if row["lost"])),
        equal("no sample is repeated", (row["dataset"] for row in rows if row["repeated"])),
        equal("order as alone", (row["dataset"] for row in rows if not row["order_as_alone"])),
        *(
            at_least(f"{row['dataset']}: {kind} killed", least_kills, row[f"killed_{kind}"])
            for row in rows
            for kind in ("data_workers", "local_workers")
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.iterable", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--samples", type=int, default=200, help="of each file")
    parser.add_argument("--seconds", type=float, default=0.01, help="that each sample takes")
    parser.add_argument("--pause", type=float, default=4.0, help="between two kills, about")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--least-kills", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    rows = [measure(kind, options) for kind in options.kinds.split(",")]
    result = {
        "seed": options.seed,
        "load": round(os.getloadavg()[0], 2),
        "seconds": round(time.monotonic() - began, 1),
        "rows": rows,
    }
    return report(result, goals_of(rows, options.least_kills), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
