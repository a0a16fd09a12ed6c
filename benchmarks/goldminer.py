"""GoldMiner's two measurements of its own data plane, made of this one.

    python -m benchmarks.goldminer --json

``slow_down`` (its Table 2): a training loop of 10 ms per step that takes a batch of so many bytes
in each, all made by one data worker, against the same loop with the batch in memory; by GB/s
delivered. Of a step of the kind ``waits`` the process waits for 10 ms, as for an accelerator,
which is what the paper measures; one of the kind ``computes`` holds the interpreter and a core for
as long. The last row is the paper's fastest, 12.5 Gb/s. ``fused`` (its Fig. 12): CPU milliseconds
to move 4.8 MB as one message that holds all tensors, and as one message per tensor. Exits with 1
where a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.dataplane.systems import running
from benchmarks.goals import at_most, report
from benchmarks.scaling import TOKEN, first, loop_seconds, served, step, workers
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer

STEP_SECONDS: Final = 0.01
FASTEST_BYTES: Final = int(12.5e9 / 8 * STEP_SECONDS)
STEP_BYTES = (100_000, 1_000_000, 5_000_000, 10_000_000, FASTEST_BYTES)
SLOW_DOWN_GOAL: Final = 0.06
"""Of a step that waits, at any of these rates: the paper has 12.7 % at the last."""
FUSED_BYTES = 4_800_000
TENSORS = (1, 10, 141)


class Ready:
    """Samples of a size, there already."""

    def __init__(self, size: int) -> None:
        self.sample = np.ones(size, np.uint8)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return self.sample


def wait() -> None:
    """A step of an accelerator, as the process sees it."""
    time.sleep(STEP_SECONDS)


STEPS: Final[dict[str, Callable[[], None]]] = {"waits": wait, "computes": step}


def slow_down(share_memory: bool, kind: str, rounds: int, steps: int) -> list[dict[str, Any]]:
    """The training loop's slow-down at each size of batch."""
    rows = []
    for size in STEP_BYTES:
        consumer = Consumer(token=TOKEN, share_memory=share_memory)
        with workers(consumer, 1):
            loader = Loader(Ready(size), 1, collate=first, consumer=consumer)
            fed, ready = served(consumer, loader, 1), iter(lambda: None, 0)
            times = [
                (loop_seconds(fed, steps, STEPS[kind]), loop_seconds(ready, steps, STEPS[kind]))
                for _ in range(rounds)
            ]
        consumer.close()
        with_data, without = (min(column) for column in zip(*times, strict=True))
        rows.append(
            {
                "over": "shared memory" if share_memory else "TCP",
                "step": kind,
                "bytes": size,
                "gb_per_second": round(size / with_data / 1e9, 3),
                "slow_down": round(with_data / without - 1, 4),
            }
        )
    return rows


def fused(system_name: str, rounds: int, seconds: float) -> list[dict[str, float]]:
    """CPU milliseconds of 4.8 MB in one message and in one per tensor."""
    rows = []
    with tempfile.TemporaryDirectory() as errors, running(system_name, Path(errors)) as system:
        for tensors in TENSORS:
            costs: dict[str, list[float]] = {"one_message": [], "one_per_tensor": []}
            for _ in range(rounds):
                for kind, size, count in (
                    ("one_message", FUSED_BYTES, tensors),
                    ("one_per_tensor", FUSED_BYTES // tensors, 1),
                ):
                    got = system.ask(bytes=size, tensors=count, seconds=seconds)
                    spent = (got["consumer_cpu"] + got["producer_cpu"]) / got["batches"]
                    costs[kind].append(1e3 * spent * tensors / count)
            rows.append(
                {"tensors": tensors, **{kind: round(median(c), 3) for kind, c in costs.items()}}
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    rows = [
        row
        for kind in STEPS
        for share_memory in (False, True)
        for row in slow_down(share_memory, kind, options.rounds, options.steps)
    ]
    result = {
        "slow_down": rows,
        "fused": {
            name: fused(f"penstock-{name}", options.rounds, options.seconds)
            for name in ("tcp", "shm")
        },
        "load": load,
    }
    goals = [
        at_most(
            f"slow-down of a step that waits for 10 ms, {row['bytes'] / 1e6:g} MB over TCP",
            SLOW_DOWN_GOAL,
            row["slow_down"],
        )
        for row in rows
        if row["over"] == "TCP" and row["step"] == "waits"
    ]
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
