"""What checkpoints cost a training, and how fast it goes on after its process was killed.

    python -m benchmarks.flash --json
    python -m benchmarks.flash --json --bytes 4000000000 --steps 30 --step-seconds 2

The systems: ``none`` saves nothing, ``copy`` copies the state within memory at each save and keeps
it nowhere, ``penstock`` is a session's checkpoints under an agent, ``before`` what they were before
snapshots in memory, ``torch.save`` and ``dcp_async`` (PyTorch's asynchronous distributed
checkpoint) what programs do by themselves. All have the same state on the
CPU, the same steps, the same disk, and take turns, ``--rounds`` times; figures are medians of the
rounds.

``mean_ms`` and ``longest_ms`` are of all steps, ``save_ms`` the mean and ``longest_save_ms`` the
longest time for which a save held the training up, ``first_save_ms`` that of the first, which
touches its memory for the first time and is not among them; ``at_300_s`` is the part of the time
that a save in 5 minutes costs: the mean of a step with saves less that without, for each save, by
300 s. ``peak`` is what the process has at most beside its libraries, by the state: 1 is the state
alone. ``restore_seconds`` is of a new process, from memory (``penstock``, its process was killed)
or from the file in the page cache; ``penstock_disk`` is Penstock without an agent.
``memcpy_ms`` is one copy of the state in memory, the bound of any save that the next step's update
must wait for: the shortest of five with nothing else to do. How much longer the longest of some
copies is within such a training, ``longest_save_ms`` of ``copy`` shows. Penstock saves when a
session does: with memory for one copy, and the disk not done with it, at the first step after that
(`penstock.trainer.snapshot.schedule`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from benchmarks.goals import Goal, at_most, equal, report
from penstock.trainer.snapshot.keeper import MEMORY, SnapshotKeeper

KEEP_NOTHING: Final = ("none", "copy")
SYSTEMS: Final = (*KEEP_NOTHING, "penstock", "before", "torch.save", "dcp_async")
PROGRAM: Final = "benchmarks.flash_programs.stepping"
EVERY_SECONDS: Final = 300.0
Row = dict[str, Any]


def run(arguments: Sequence[str], memory: str) -> Row:
    """What one process printed last; it may have killed itself after that."""
    environ = {key: value for key, value in os.environ.items() if key != MEMORY}
    if memory:
        environ[MEMORY] = memory
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, *arguments],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        timeout=1800,
        check=False,
    )
    lines = done.stdout.splitlines()
    if not lines:
        raise RuntimeError(f"{arguments}: it printed nothing and ended with {done.returncode}")
    printed: Row = json.loads(lines[-1])
    return printed


def one_round(system: str, options: argparse.Namespace) -> Row:
    """One training with its saves, and one process that goes on from there."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        keeper = SnapshotKeeper()
        memory = keeper.path if system == "penstock" else ""
        size = str(options.bytes)
        try:
            pace = [str(options.steps), str(options.every), str(options.step_seconds)]
            trained = run(["train", system, folder, size, *pace], memory)
            begun = {}
            if system not in KEEP_NOTHING:
                begun["restore"] = run(["begin", system, folder, size], memory)
            if system == "penstock":
                begun["from_disk"] = run(["begin", system, folder, size], "")
        finally:
            keeper.close()
    return row_of(system, trained, begun, options.bytes)


def row_of(system: str, trained: Row, begun: dict[str, Row], size: int) -> Row:
    """The figures of one round."""
    times, saves = trained["times"], trained["saves"]
    row: Row = {
        "system": system,
        "mean_ms": 1e3 * mean(times),
        "longest_ms": 1e3 * max(times),
        "peak": trained["peak_bytes"] / size,
        "memcpy_ms": 1e3 * trained["memcpy_seconds"],
        "saves": len(saves),
        "steps": len(times),
    }
    if system != "none":
        row["first_save_ms"] = 1e3 * saves[0]
        row["save_ms"] = 1e3 * mean(saves[1:])
        row["longest_save_ms"] = 1e3 * max(saves[1:])
    for name, found in begun.items():
        row[f"{name}_seconds"] = found["seconds"]
        row[f"{name}_peak"] = found["peak_bytes"] / size
        row[f"{name}_whole"] = found["digest"] == trained["digest"]
    return row


def medians(rounds: Sequence[Row]) -> Row:
    """The rounds of one system as one row; what is not whole in one is not in all."""
    row: Row = {}
    for key, value in rounds[0].items():
        values = [each[key] for each in rounds]
        if isinstance(value, bool):
            row[key] = all(values)
        else:
            row[key] = round(median(values), 3) if isinstance(value, float) else value
    return row


def add_cost(rows: Sequence[Row]) -> None:
    """Add to each row what its saves cost, beside the training that has none."""
    plain = next(row["mean_ms"] for row in rows if row["system"] == "none")
    for row in rows:
        if row["system"] != "none":
            cost_ms = (row["mean_ms"] - plain) * row["steps"] / row["saves"]
            row["at_300_s"] = round(cost_ms / 1e3 / EVERY_SECONDS, 5)


def goals(rows: Sequence[Row]) -> list[Goal]:
    """Issue 24's, for the CPU."""
    [ours] = [row for row in rows if row["system"] == "penstock"]
    copies = [row for row in rows if row["system"] == "copy"]
    wrong = [
        f"{row['system']} {key}"
        for row in rows
        for key, value in row.items()
        if key.endswith("_whole") and not value
    ]
    return [
        equal("states taken up are those that were kept", wrong),
        at_most("mean longer, at a save in 5 minutes", 0.01, ours["at_300_s"]),
        at_most(
            "longest save by one copy of the state in memory",
            1.2,
            round(ours["longest_save_ms"] / ours["memcpy_ms"], 2),
        ),
        *(
            at_most(
                "longest save by the longest of as many plain copies while it trains",
                1.2,
                round(ours["longest_save_ms"] / copy["longest_save_ms"], 2),
            )
            for copy in copies
        ),
        at_most(
            "restored from memory, seconds, beside one copy of the state",
            1.0,
            round(ours["restore_seconds"] - ours["memcpy_ms"] / 1e3, 3),
        ),
        at_most("peak memory by the state, training", 2.2, ours["peak"]),
        at_most("peak memory by the state, taking up", 2.2, ours["restore_peak"]),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """As the module says."""
    parser = argparse.ArgumentParser(description="What checkpoints cost a training.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="nothing here is drawn by chance")
    parser.add_argument("--bytes", type=int, default=400_000_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="steps between saves")
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="on the disk to write to")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    options = parser.parse_args(arguments)
    if options.steps < 2 * options.every:
        parser.error(f"--steps: {options.steps}; at least two saves, so twice --every")
    systems = options.systems.split(",")
    if unknown := set(systems) - set(SYSTEMS) or {"none", "penstock"} - set(systems):
        parser.error(
            f"--systems: {sorted(unknown)}; some of {SYSTEMS}, none and penstock with them"
        )
    load = [os.getloadavg()[0]]
    found: dict[str, list[Row]] = {system: [] for system in systems}
    for _ in range(options.rounds):
        for system in systems:
            found[system].append(one_round(system, options))
            load.append(os.getloadavg()[0])
    rows = [medians(found[system]) for system in systems]
    add_cost(rows)
    result = {
        "seed": options.seed,
        "load": round(max(load), 1),
        "cores": len(os.sched_getaffinity(0)),
        "state_bytes": options.bytes,
        "rows": rows,
    }
    return report(result, goals(rows), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
