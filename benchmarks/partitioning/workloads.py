"""Programs of which a part is stateless, or looks as if it were: the same losses, and what moved.

The programs of `benchmarks.partition_programs.train` run under ``--partition never`` and
``--partition auto``, with local workers or data workers, one after the other in one process for
each way. Digests of all losses and of the trained parameters are compared. Of what has to stay, the
reason that is said has to be the right one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.goals import Goal, at_least, equal
from benchmarks.programs import PENSTOCK
from penstock.crds.environment import PARTITION_SHARE

TRAIN: Final = Path(__file__).parent.parent / "partition_programs" / "train.py"
LIMIT_SECONDS: Final = 1200.0
BATCH: Final = 8
"""Samples of a step of each program."""
ALL: Final = {PARTITION_SHARE: "1"}
"""Bits are compared where all that can move does, also where that is slower."""
MOVED_SHARE: Final = 0.8
"""Of the steps after the first epoch, which is recorded, that are not compared."""


@dataclass(frozen=True)
class Workload:
    """One program.

    Attributes:
        name: of it.
        moves: whether something is to move; if not, all has to stay.
        reason: that has to be said where it stays.
        declared: it says itself what is to move, so that nothing else in its process does.
        draws: what it declares draws, which is seeded where loaders are Penstock's.
    """

    name: str
    moves: bool
    reason: str = ""
    declared: bool = False
    draws: bool = False


WORKLOADS: Final = (
    Workload("frozen-cnn", moves=True),
    Workload("diffusion", moves=True),
    Workload("clip-probe", moves=True),
    Workload("clicks", moves=True),
    Workload("mel", moves=True),
    Workload("tokenise", moves=True, declared=True),
    Workload("augment", moves=True, declared=True, draws=True),
    Workload("two-stage", moves=True),
    Workload("ragged-last-batch", moves=True),
    Workload("ema-teacher", moves=False, reason="Mutated"),
    Workload("bn-train", moves=False, reason="Mutated"),
    Workload("python-random", moves=False, reason="Varying"),
    Workload("step-constant", moves=False, reason="Varying"),
    Workload("dropout-first", moves=False, reason="Random"),
    Workload(
        "branch-on-data", moves=False, reason="Pinned|not alike|unlike|does not make the calls"
    ),
    Workload("custom-extension", moves=False, reason="Pinned|memory was given away"),
)
WAYS: Final[tuple[tuple[str, tuple[str, ...], int], ...]] = (
    ("0", (), 0),
    ("1 local", (), 1),
    ("2 local", (), 2),
    ("1 data", ("--data-workers", "1"), 0),
)
"""Workers, options of ``penstock run``, and local workers of each loader."""
NEVER: Final = {
    (False, False): ("--partition", "never"),
    (True, False): ("--partition", "never"),
    (True, True): ("--partition", "never", "--data-workers", "0"),
}
"""Programs that declare something, and that draw in it, and how they run where nothing moves."""
GOOD: Final = ("1 local", "2 local")
"""Ways in which no batch is made by the program itself."""


def run(names: list[str], steps: int, epochs: int) -> tuple[list[dict[str, Any]], list[Goal]]:
    """Rows, and their goals; ``names``: of workloads, or ``all``."""
    chosen = {one.name: one for one in WORKLOADS if "all" in names or one.name in names}
    rows: list[dict[str, Any]] = []
    for kind, never in NEVER.items():
        together = [name for name, one in chosen.items() if (one.declared, one.draws) == kind]
        if not together:
            continue
        alone = train(together, never, 0, steps, epochs)
        for workers, options, local in WAYS:
            told = ("--partition", "auto", *options)
            found = train(together, told, local, steps, epochs, ALL)
            rows += [
                _row(chosen[its["name"]], workers, own, its, epochs)
                for own, its in zip(alone, found, strict=True)
            ]
    return rows, _goals(rows, chosen)


def _row(workload: Workload, workers: str, alone: Any, found: Any, epochs: int) -> dict[str, Any]:
    able = found["steps"] - found["steps"] // epochs - found["compared"]
    return {
        "workload": workload.name,
        "workers": workers,
        "expected": "moved" if workload.moves else "kept",
        "steps": found["steps"],
        "losses_equal": found["losses"] == alone["losses"],
        "parameters_equal": found["parameters"] == alone["parameters"],
        "compared": found["compared"],
        "moved": found["moved"],
        "moved_share": round(found["moved"] / able, 3) if able > 0 else 0.0,
        "state": found["state"],
        "why": found["why"][:400],
    }


def _goals(rows: list[dict[str, Any]], chosen: dict[str, Workload]) -> list[Goal]:
    differing = [
        _named(row) for row in rows if not (row["losses_equal"] and row["parameters_equal"])
    ]
    goals = [equal("losses and parameters, beside the program that moves nothing", differing)]
    goals += [
        at_least(
            f"{_named(row)}: share of steps moved, of those after the first epoch's and compared",
            MOVED_SHARE,
            row["moved_share"],
        )
        for row in rows
        if row["expected"] == "moved" and row["workers"] in GOOD
    ]
    kept = [row for row in rows if row["expected"] == "kept"]
    if kept:
        goals.append(
            equal("nothing moves that must not", [_named(row) for row in kept if row["moved"]])
        )
        unsaid = [
            f"{_named(row)}: {row['why']}"
            for row in kept
            if row["workers"] != "0"  # nothing comes there that could be used
            and not re.search(chosen[row["workload"]].reason, row["why"])
        ]
        goals.append(equal("each that stays says why", unsaid))
    return goals


def _named(row: dict[str, Any]) -> str:
    return f"{row['workload']} with {row['workers']} workers"


def train(
    names: list[str],
    options: tuple[str, ...],
    workers: int,
    steps: int,
    epochs: int,
    environ: dict[str, str] | None = None,
) -> list[Any]:
    """What one process that runs all of them printed; ``environ``: variables of its own."""
    program = [sys.executable, str(TRAIN), *names, "--workers", str(workers)]
    program += ["--steps", str(steps), "--epochs", str(epochs)]
    done = subprocess.run(
        [PENSTOCK, "run", *options, "--", *program],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK")},
            **(environ or {}),
        },
    )
    if done.returncode:
        raise RuntimeError(f"{options}: {done.stderr[-3000:]}")
    found: list[Any] = json.loads(done.stdout)
    return found
