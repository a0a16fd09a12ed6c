"""What a worker at a quarter of its speed costs, with shares by speed and with even ones.

    python -m benchmarks.straggler --json

Four workers, AllReduce; one takes four times as long for each slot. The job completion time counts
from the first step to the last. ``static`` divides every step evenly, ``dynamic`` by measured
speed, and ``healthy`` is the same job without a straggler. The paper (DLRover, section 6.2)
reports 24 and 42 % shorter times than with static shards.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.elastic.processes import running_job
from benchmarks.elastic.steps import read_steps

WORKERS = 4


def completion_seconds(epochs: int, slot_seconds: float, *, slow: bool, static: bool) -> float:
    """Run one job; seconds from its first committed step to its last."""
    with tempfile.TemporaryDirectory() as name, running_job(Path(name)) as job:
        job.start_trainer(f"--workers={WORKERS}", *(["--static-shares"] if static else []))
        for rank in range(WORKERS):
            job.start_worker(
                rank,
                sys.executable,
                "-m",
                "benchmarks.elastic.script",
                f"--log={job.folder}",
                f"--epochs={epochs}",
                f"--slot-seconds={slot_seconds}",
                *(["--slow-rank=3", "--slow-factor=4"] if slow else []),
            )
        codes = job.exit_codes(timeout=600)
        assert set(codes.values()) == {0}, job.logs()
        assert job.result()["samples_lost"] == job.result()["samples_repeated"] == 0
        steps = read_steps(job.folder.glob("steps-*.jsonl"))
        return steps[-1].time_seconds - steps[0].time_seconds


def run(rounds: int, epochs: int, slot_seconds: float) -> dict[str, float]:
    """Interleave the three kinds; medians."""
    kinds = {
        "healthy": {"slow": False, "static": False},
        "static": {"slow": True, "static": True},
        "dynamic": {"slow": True, "static": False},
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, options in kinds.items():
            found[kind].append(completion_seconds(epochs, slot_seconds, **options))
    figures = {f"{kind}_seconds": round(median(times), 2) for kind, times in found.items()}
    change = figures["dynamic_seconds"] / figures["static_seconds"] - 1
    return {**figures, "change_percent": round(100 * change, 1), "rounds": rounds}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--slot-seconds", type=float, default=0.03)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = run(options.rounds, options.epochs, options.slot_seconds)
    print(json.dumps(figures) if options.json else json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
