"""GoldMiner's two measurements of its own data plane, made of this one.

    python -m benchmarks.goldminer --json

``slow_down`` (its Table 2): a training loop that computes 10 ms per step and takes a batch of so
many bytes in each, all made by one data worker, against the same loop with the batch in memory; by
GB/s delivered. ``fused`` (its Fig. 12): CPU milliseconds to move 4.8 MB as one message that holds
all tensors, and as one message per tensor.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.dataplane.systems import running
from benchmarks.scaling import TOKEN, first, loop_seconds, served, workers
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer

STEP_BYTES = (100_000, 1_000_000, 5_000_000, 10_000_000)
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


def slow_down(share_memory: bool, rounds: int, steps: int) -> list[dict[str, float]]:
    """The training loop's slow-down at each size of batch."""
    rows = []
    for size in STEP_BYTES:
        consumer = Consumer(token=TOKEN, share_memory=share_memory)
        with workers(consumer, 1):
            loader = Loader(Ready(size), 1, collate=first, consumer=consumer)
            fed, ready = served(consumer, loader, 1), iter(lambda: None, 0)
            times = [(loop_seconds(fed, steps), loop_seconds(ready, steps)) for _ in range(rounds)]
        consumer.close()
        with_data, without = (min(column) for column in zip(*times, strict=True))
        rows.append(
            {
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
    result = {
        "slow_down": {
            "tcp": slow_down(False, options.rounds, options.steps),
            "shm": slow_down(True, options.rounds, options.steps),
        },
        "fused": {
            name: fused(f"penstock-{name}", options.rounds, options.seconds)
            for name in ("tcp", "shm")
        },
        "load": os.getloadavg()[0],
    }
    print(json.dumps(result, indent=None if options.json else 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
