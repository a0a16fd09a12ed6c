"""Steps of like length as tf.data service forms them, beside ours: `benchmarks.buckets --peers`.

Three rows for the real library and ours on the same lengths, buckets and ranks: padding on endless
data; a dataset with an end; and a rank that is killed with -9 and started again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import programs
from benchmarks.dataplane.systems import ROOT, interpreter
from benchmarks.goals import Goal, at_least, at_most
from penstock.data.ledger import BucketOrder, Buckets, Slot

BATCH: Final = 32
STEPS: Final = 100
"""That are read of endless data."""
NOISE: Final = 0.005
"""So much may two draws of that many steps differ in their share of real tokens."""
FINITE: Final = 4096
KILL_RANKS: Final = 4
KILL_WIDTH: Final = 128
KILLED_AFTER: Final = 10
LIMIT_SECONDS: Final = 240.0


def tfdata(what: str, lengths: Path, *numbers: int) -> dict[str, Any]:
    """What their program says."""
    module = [interpreter("tfdata"), "-W", "ignore", "-m", "benchmarks.dataplane.tfdata_rounds"]
    done = subprocess.run(
        [*module, what, str(lengths), *map(str, numbers)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"tf.data service, {what}: {done.stderr[-1000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def padding(steps: Sequence[Sequence[Any]]) -> tuple[float, float]:
    """Of steps of ranks' lengths: the share of real tokens, and the slowest rank by the mean."""
    real = padded = 0
    slowest = []
    for ranks in steps:
        own = [len(one) * max(one) for one in ranks]
        real += sum(sum(one) for one in ranks)
        padded += sum(own)
        slowest.append(max(own) / fmean(own))
    return round(real / padded, 4), round(fmean(slowest), 3)


def ours(lengths: NDArray[np.int64], ranks: int, width: int, longest: int, seed: int) -> Any:
    """The lengths of each rank in each step of an epoch, and the samples seen."""
    buckets = Buckets.of(lengths, range(width, longest + 1, width))
    order = BucketOrder(len(lengths), BATCH * ranks, ranks, 1, seed, buckets=buckets)
    steps, seen = [], []
    for step in range(order.steps_per_epoch):
        parts = [order.samples(Slot(0, step, rank)) for rank in range(ranks)]
        seen += [index for part in parts for index in part.tolist()]
        steps.append([lengths[part].tolist() for part in parts if len(part)])
    return steps, Counter(seen)


def endless_row(
    file: Path, lengths: NDArray[np.int64], ranks: int, width: int, longest: int, seed: int
) -> dict[str, Any]:
    """Padding of one shape of job."""
    found = tfdata("read", file, ranks, width, longest, BATCH, STEPS, seed)
    got = found["batches"]
    read = min(map(len, got))
    theirs = padding([[one[step] for one in got] for step in range(read)]) if read else (None, None)
    steps, _ = ours(lengths, ranks, width, longest, seed)
    real, slowest = padding(steps)
    return {
        "ranks": ranks,
        "buckets_of": width,
        "real": real,
        "real_tfdata": theirs[0],
        "slowest": slowest,
        "slowest_tfdata": theirs[1],
        "steps": len(steps),
        "steps_tfdata": read,
        "error_tfdata": found["error"],
    }


def finite_row(folder: Path, lengths: NDArray[np.int64], longest: int, seed: int) -> dict[str, Any]:
    """A dataset with an end: what becomes of its samples."""
    lengths = lengths[:FINITE]
    file = folder / "finite.npy"
    np.save(file, lengths)
    found = tfdata("read", file, KILL_RANKS, KILL_WIDTH, longest, BATCH, 0, seed)
    _, seen = ours(lengths, KILL_RANKS, KILL_WIDTH, longest, seed)
    return {
        "samples": len(lengths),
        "lost": len(lengths) - len(seen),
        "repeated": seen.total() - len(seen),
        "tfdata_ended": found["ended"],
        "samples_tfdata": sum(len(one) for rank in found["batches"] for one in rank),
        "error_tfdata": found["error"],
    }


def kill_row(folder: Path, lengths: NDArray[np.int64], longest: int, seed: int) -> dict[str, Any]:
    """One rank is killed with -9 in the middle, and started again."""
    lengths = lengths[:FINITE]
    file = folder / "finite.npy"
    np.save(file, lengths)
    shape = (KILL_RANKS, KILL_WIDTH, longest, BATCH)
    found = tfdata("kill", file, *shape, 1, seed)
    seen = killed_ranks(folder, file, *shape, seed)
    return {
        "samples": len(lengths),
        "went_on": seen is not None,
        "lost": None if seen is None else len(lengths) - len(seen),
        "repeated": None if seen is None else seen.total() - len(seen),
        "tfdata_went_on": found["went_on"],
        "rounds_of_others_tfdata": found.get("rounds_of_others_after_the_kill"),
        "error_tfdata": found["error"],
    }


def killed_ranks(
    folder: Path, file: Path, ranks: int, width: int, longest: int, batch: int, seed: int
) -> Counter[int] | None:
    """The samples that our ranks saw; None if they did not come to the end."""
    module = [sys.executable, "-m", "benchmarks.buckets_programs.rank"]
    numbers = map(str, (ranks, width, longest, batch, seed))
    command = [*module, str(file), *numbers, str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(rank: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, str(rank)], env=environ, cwd=ROOT)

    running = [start(rank) for rank in range(ranks)]
    deadline = time.monotonic() + LIMIT_SECONDS
    victim, checkpoint, killed = ranks - 1, folder / f"rank-{ranks - 1}.json", False
    done = [folder / f"done-{rank}.json" for rank in range(ranks)]
    try:
        while time.monotonic() < deadline and not all(one.exists() for one in done):
            if not killed and _steps(checkpoint) >= KILLED_AFTER:
                programs.kill(running[victim])
                killed = not done[victim].exists()
                running[victim] = start(victim)
            time.sleep(0.01)
        if not killed or not all(one.exists() for one in done):
            return None
        return Counter(index for one in done for index in json.loads(one.read_text())["seen"])
    finally:
        programs.kill(*running)


def _steps(checkpoint: Path) -> int:
    return int(json.loads(checkpoint.read_text())["steps"]) if checkpoint.exists() else 0


def compare(
    lengths: NDArray[np.int64], shapes: Sequence[tuple[int, int]], longest: int, seed: int
) -> tuple[dict[str, list[dict[str, Any]]], list[Goal]]:
    """The rows, and what ours has to be.

    Args:
        lengths: of the samples.
        shapes: ranks and widths of buckets.
        longest: that a sample may be.
        seed: of the orders.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "lengths.npy", lengths)
        endless = [
            endless_row(folder / "lengths.npy", lengths, ranks, width, longest, seed)
            for ranks, width in shapes
        ]
        finite = finite_row(folder, lengths, longest, seed)
        kill = kill_row(folder, lengths, longest, seed)
    goals = [
        *(
            at_least(
                f"real tokens less those of tf.data, {row['ranks']} ranks",
                -NOISE,
                row["real_tfdata"] and round(row["real"] - row["real_tfdata"], 4),
            )
            for row in endless
        ),
        at_most("finite data: lost and repeated", 0, finite["lost"] + finite["repeated"]),
        _refuses("finite data: tf.data refuses it", finite["error_tfdata"]),
        at_most("a rank killed: lost and repeated", 0, _sum(kill["lost"], kill["repeated"])),
        _refuses("a rank killed: tf.data does not go on", kill["error_tfdata"]),
    ]
    return {"endless": endless, "finite": [finite], "killed_rank": [kill]}, goals


def _sum(lost: int | None, repeated: int | None) -> float | None:
    return None if lost is None or repeated is None else lost + repeated


def _refuses(name: str, error: str) -> Goal:
    return Goal(name, "an error, or no end", error, bool(error))
