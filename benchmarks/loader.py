"""Whole input pipelines made elsewhere: what is reached of what offloading could give.

    python -m benchmarks.loader --workload jpeg --peers torch,ray --json

A producer on one core makes batches of a workload (`benchmarks.dataplane.workloads`), a consumer on
another takes them. With d CPU-seconds per sample in line, and P and C what producer and consumer
really spend per sample, two equal cores that share the work between them are

    1 + (d - C) / P

times as fast as one. The limit puts in what ready batches of the same bytes cost the same system:
P = d + s b and C = c b. ``fraction_of_limit`` is one by the other; ``samples_per_cpu_second``
counts the CPU time of both sides. The systems take turns; medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.dataplane.systems import OURS, running
from benchmarks.dataplane.workloads import BATCH, KINDS, collate
from penstock.data.allocator import ALLOCATOR

PEERS = ("torch", "tfdata", "ray")


def inline(workload: str, seconds: float) -> tuple[float, int]:
    """CPU-seconds per sample in one process, and the bytes of a batch: the bare pipeline.

    So what a system does beside it, as seeding for every sample, counts against that system.
    """
    dataset, size = KINDS[workload](), BATCH[workload]
    batch = collate([dataset[index] for index in range(size)])
    count, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        collate([dataset[index] for index in range(size)])
        count += size
    return (time.process_time() - cpu) / count, sum(array.nbytes for array in batch.values())


def compare(workload: str, names: list[str], rounds: int, seconds: float) -> dict[str, Any]:
    """The figures of every system."""
    size = BATCH[workload]
    costs: list[float] = []
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    load = [os.getloadavg()[0]]
    with ExitStack() as stack:
        errors = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        systems = [stack.enter_context(running(name, errors)) for name in names]
        for _ in range(rounds):
            cost, batch_bytes = inline(workload, seconds)
            costs.append(cost)
            for system in systems:
                real = system.ask(workload=workload, seconds=seconds)
                ready = system.ask(bytes=batch_bytes, tensors=1, seconds=seconds / 2)
                samples, moved = real["batches"] * size, ready["batches"] * size
                produced, consumed = real["producer_cpu"] / samples, real["consumer_cpu"] / samples
                reached = 1 + (cost - consumed) / produced
                sent, taken = ready["producer_cpu"] / moved, ready["consumer_cpu"] / moved
                limit = 1 + (cost - taken) / (cost + sent)
                per_second = samples / real["seconds"]
                found[system.name].append((1 / (produced + consumed), per_second, reached / limit))
    load.append(os.getloadavg()[0])
    return {
        "workload": workload,
        "inline_samples_per_cpu_second": round(1 / median(costs), 1),
        "systems": {
            name: {
                "samples_per_cpu_second": round(median(one[0] for one in points), 1),
                "samples_per_second": round(median(one[1] for one in points), 1),
                "fraction_of_limit": round(median(one[2] for one in points), 3),
            }
            for name, points in found.items()
        },
        "rounds": rounds,
        "load": load,
    }


def main() -> int:
    missing = {name: value for name, value in ALLOCATOR.items() if name not in os.environ}
    if missing:  # the inline cost is this process's, and the systems have these settings
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **missing})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=[*KINDS, "all"], default="jpeg")
    parser.add_argument("--peers", default="none", help=f"none, all, or some of {','.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    peers = {"none": [], "all": list(PEERS)}.get(options.peers, options.peers.split(","))
    if unknown := [name for name in peers if name not in PEERS]:
        parser.error(f"--peers: {unknown}; choose from {', '.join(PEERS)}")
    for workload in KINDS if options.workload == "all" else [options.workload]:
        result = compare(workload, [*OURS, *peers], options.rounds, options.seconds)
        print(json.dumps(result, indent=None if options.json else 2), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
