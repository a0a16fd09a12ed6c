"""How data workers add up, and what one costs that has nothing to do.

    python -m benchmarks.scaling --json

A pipeline that only sleeps, so that two cores suffice for fourteen data workers:
``fraction_of_linear`` is the throughput with N of them by N times that with one.
``idle_worker_share_of_core`` is what a connected data worker uses when nobody asks for anything.
``added_share`` is how much longer a training loop takes that computes for 10 ms per batch and has
its batches (1 MB) made by a data worker, than one that has them in memory: GoldMiner reports up to
12.7 % (section 5.2). Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import psutil

from benchmarks import programs
from benchmarks.goals import Goal, at_least, at_most, report
from penstock.data import Loader
from penstock.data.allocator import ALLOCATOR
from penstock.data.consuming.consumer import Consumer

TOKEN = "benchmark"
COUNTS: Final = (1, 2, 4, 8, 14)
LINEAR_GOAL: Final = 0.95
"""GoldMiner's Fig. 9 ends between 0.83 and 0.89."""
ADDED_GOAL: Final = 0.03
IDLE_GOAL: Final = 0.01
WAIT_SECONDS: Final = 120.0
WORKER = """
import sys
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.worker import DataWorker, work
entry = ConsumerEntry(name="benchmark", address=sys.argv[1], local=sys.argv[2])
work(DataWorker(token=sys.argv[3], consumers=(entry,)))
"""


class Sleeps:
    """Samples that take 40 ms and no CPU."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> int:
        time.sleep(0.04)
        return index


class Megabytes:
    """Samples of 1 MB that are there already."""

    def __init__(self) -> None:
        self.sample = np.ones((1, 1 << 20), np.uint8)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return self.sample


def first(samples: list[Any]) -> Any:
    """Batches of one sample, as it is."""
    return samples[0]


@contextmanager
def workers(consumer: Consumer, count: int) -> Iterator[list[psutil.Process]]:
    """So many data worker processes, connected."""
    command = [sys.executable, "-c", WORKER, consumer.address, consumer.local, TOKEN]
    started = [subprocess.Popen(command, env={**os.environ, **ALLOCATOR}) for _ in range(count)]
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while len(consumer.workers) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(consumer.workers)} of {count} data workers came")
            time.sleep(0.05)
        yield [psutil.Process(one.pid) for one in started]
    finally:
        programs.end(*started)


def served(consumer: Consumer, loader: Loader, count: int) -> Iterator[Any]:
    """The loader's batches, once data workers make them."""
    batches, before = iter(loader), consumer.counts.arrived
    while consumer.counts.arrived < before + 4 * count:
        next(batches)
    return batches


def throughput(consumer: Consumer, count: int, seconds: float) -> float:
    """Batches per second of a pipeline that sleeps."""
    with workers(consumer, count):
        batches = served(consumer, Loader(Sleeps(), 1, consumer=consumer), count)
        taken, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            next(batches)
            taken += 1
        return taken / (time.perf_counter() - began)


def idle_share(consumer: Consumer, seconds: float) -> float:
    """Part of a core that a data worker with nothing to do uses."""
    with workers(consumer, 1) as [process]:
        time.sleep(1.0)
        before = process.cpu_times()
        time.sleep(seconds)
        after = process.cpu_times()
        return (after.user + after.system - before.user - before.system) / seconds


def step() -> None:
    """10 ms of computing in Python, which lets no other thread of the process have a turn."""
    until = time.thread_time() + 0.01
    while time.thread_time() < until:
        pass


def loop_seconds(batches: Iterator[Any], steps: int, step: Callable[[], None] = step) -> float:
    """Time of a training loop, per step."""
    began = time.perf_counter()
    for _ in range(steps):
        next(batches)
        step()
    return (time.perf_counter() - began) / steps


def added_share(consumer: Consumer, steps: int, rounds: int) -> float:
    """How much longer a loop takes that is fed by a data worker; least of several rounds each."""
    with workers(consumer, 1):
        loader = Loader(Megabytes(), 1, collate=first, consumer=consumer)
        fed = served(consumer, loader, 1)
        ready = iter(lambda: Megabytes, None)
        times: dict[str, list[float]] = {"fed": [], "ready": []}
        for _ in range(rounds):
            times["fed"].append(loop_seconds(fed, steps))
            times["ready"].append(loop_seconds(ready, steps))
    return min(times["fed"]) / min(times["ready"]) - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    load, consumer = os.getloadavg()[0], Consumer(token=TOKEN)
    rates = {count: throughput(consumer, count, options.seconds) for count in COUNTS}
    fractions = {count: round(rate / (count * rates[1]), 3) for count, rate in rates.items()}
    idle = round(idle_share(consumer, 3 * options.seconds), 4)
    added = round(added_share(consumer, 100, 5), 4)
    consumer.close()
    result = {
        "batches_per_second": {count: round(rate, 1) for count, rate in rates.items()},
        "fraction_of_linear": fractions,
        "idle_worker_share_of_core": idle,
        "added_share": added,
        "load": load,
    }
    return report(result, _goals(fractions, idle, added), as_json=options.json)


def _goals(fractions: dict[int, float], idle: float, added: float) -> list[Goal]:
    return [
        *(
            at_least(f"{count} data workers: fraction of linear", LINEAR_GOAL, fraction)
            for count, fraction in fractions.items()
        ),
        at_most("part of a core of a data worker that has nothing to do", IDLE_GOAL, idle),
        at_most("how much longer a loop of 10 ms takes with 1 MB a step", ADDED_GOAL, added),
    ]


if __name__ == "__main__":
    sys.exit(main())
