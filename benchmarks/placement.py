"""How fast the placement engine is: placements per second, updates, memory, in one process.

``python -m benchmarks.placement --nodes 10000 --json``

A cluster is filled with data workers and GPU pods of a few dozen shapes. Beside the engine, the
same score in plain Python, node by node: what one writes without columns. An update is one watch
event of a pod that comes to, or leaves, a node of the snapshot. Times are CPU time of this process,
so that other work on the machine does not count; on an idle machine that is the time on the clock.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from penstock.scheduler.objects import Amounts, Node, Pod
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.snapshot import Snapshot
from penstock.scheduler.placement.stranding import Stranding
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request

GIBIBYTE = 1024**3
KIND = "nvidia.com/gpu"
NODE_KINDS = ((8, 96, 768), (8, 128, 1024), (4, 48, 384), (2, 64, 512), (0, 64, 256))


def build(nodes: int, generator: np.random.Generator) -> Snapshot:
    """A snapshot of a mixed cluster, a third of it in use."""
    snapshot = Snapshot()
    for index in range(nodes):
        gpus, cores, memory = NODE_KINDS[int(generator.integers(len(NODE_KINDS)))]
        kinds = ((KIND, gpus),) if gpus else ()
        amounts = Amounts(1000 * cores, memory * GIBIBYTE, kinds)
        snapshot.upsert_node(Node(f"node-{index:05d}", amounts))
        used_gpus = int(generator.integers(gpus // 2 + 1)) if gpus else 0
        used = Amounts(
            1000 * int(generator.integers(cores // 2)),
            8 * GIBIBYTE,
            ((KIND, used_gpus),) if used_gpus else (),
        )
        snapshot.upsert_pod(Pod(f"old-{index}", f"node-{index:05d}", used))
    return snapshot


def shapes() -> list[Request]:
    """Data workers of 1 to 8 cores, and GPU pods of 1 to 8 GPUs."""
    data_workers = [Request(1000 * cores, 2 * cores * GIBIBYTE) for cores in range(1, 9)]
    gpu_pods = [
        Request(1000 * gpus * cores, 16 * gpus * GIBIBYTE, gpus, accelerator_kinds=(KIND,))
        for gpus in (1, 2, 4, 8)
        for cores in (3, 8, 12)
    ]
    return data_workers * 2 + gpu_pods


def stream(count: int, generator: np.random.Generator) -> list[Request]:
    """Requests of those shapes in random order."""
    known = shapes()
    return [known[index] for index in generator.integers(len(known), size=count).tolist()]


def engine_rate(snapshot: Snapshot, requests: list[Request]) -> tuple[float, int]:
    """Placements per second of the engine, and how many requests found a place."""
    placer = Placer(snapshot.columns, Stranding(), eligible=snapshot.eligible)
    for request in set(requests):
        placer.look(request)  # the first look at a shape scores every node; it is not the rate
    started = time.process_time()
    placed = sum(placement is not None for placement in placer.place_all(requests))
    return len(requests) / (time.process_time() - started), placed


def plain_rate(snapshot: Snapshot, requests: list[Request]) -> float:
    """Placements per second of the same stranding score, written as a loop over nodes."""
    columns = snapshot.columns
    nodes = [
        [
            int(columns.free_milli_cpu[row]),
            int(columns.total_milli_cpu[row]),
            int(columns.whole_devices[row]),
            int(columns.total_accelerator_milli[row]) // WHOLE_DEVICE_MILLI,
        ]
        for row in columns.rows().tolist()
    ]
    started = time.process_time()
    for request in requests:
        best, chosen = float("-inf"), None
        for node in nodes:
            free_cpu, total_cpu, free_gpus, gpus = node
            if free_cpu < request.milli_cpu or free_gpus < request.accelerators:
                continue
            decrease = _burden(free_cpu, total_cpu, free_gpus, gpus) - _burden(
                free_cpu - request.milli_cpu, total_cpu, free_gpus - request.accelerators, gpus
            )
            if decrease > best:
                best, chosen = decrease, node
        if chosen is not None:
            chosen[0] -= request.milli_cpu
            chosen[2] -= request.accelerators
    return len(requests) / (time.process_time() - started)


def _burden(free_cpu: int, total_cpu: int, free_gpus: int, gpus: int) -> float:
    if not gpus:
        return 0.0
    lean = (free_cpu / total_cpu - free_gpus / gpus) * gpus
    return max(-lean, 0.1 * lean)


def update_microseconds(snapshot: Snapshot, events: int, generator: np.random.Generator) -> float:
    """Mean time of one pod event, half of them arrivals and half departures."""
    names = list(snapshot.nodes)
    chosen = [names[index] for index in generator.integers(len(names), size=events // 2).tolist()]
    pods = [
        Pod(f"event-{index}", name, Amounts(2000, GIBIBYTE)) for index, name in enumerate(chosen)
    ]
    started = time.process_time()
    for pod in pods:
        snapshot.upsert_pod(pod)
    for pod in pods:
        snapshot.remove_pod(pod.uid)
    return 1e6 * (time.process_time() - started) / max(1, 2 * len(pods))


def measure(nodes: int, placements: int, plain_placements: int, seed: int) -> dict[str, float]:
    """All figures for one size of cluster."""
    generator = np.random.default_rng(seed)
    snapshot = build(nodes, generator)
    update = update_microseconds(snapshot, 20_000, generator)
    requests = stream(placements, generator)
    plain = plain_rate(snapshot, requests[:plain_placements])
    rate, placed = engine_rate(snapshot, requests)
    return {
        "nodes": nodes,
        "placements_per_second": round(rate, 1),
        "plain_python_per_second": round(plain, 1),
        "update_microseconds": round(update, 2),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "placed": placed,
    }


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--placements", type=int, default=20_000)
    parser.add_argument("--plain-placements", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if min(options.nodes, options.placements, options.plain_placements) < 1:
        parser.error("--nodes, --placements and --plain-placements must be at least 1")
    figures = measure(options.nodes, options.placements, options.plain_placements, options.seed)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):>26}  {value:,}")


if __name__ == "__main__":
    main()
