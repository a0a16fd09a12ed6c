"""How a large frozen module reaches the data workers of a node, and how often it is sent.

    python -m benchmarks.weights --json

A chain of linear layers of ``--mib`` MiB is declared and called on each batch by 1 and by 2 data
workers of one node, and by 2 that have no folder in common, as on two nodes, over TCP. ``sent_mib``
is what the training process sent of its weights; ``first_seconds`` are those from the first request
to the first batch with a result, ``seconds`` those to the last of ``--steps`` results, each of
which is compared with the program's own. ``pickled_kib`` is what is left of the function in its
pipeline. Exits with 1 where a goal is missed; seconds have none, since they are the machine's.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils.data import default_collate

from benchmarks import programs
from benchmarks.goals import Goal, at_least, at_most, report
from penstock.crds import environment as names
from penstock.data.consuming.batch_stream import BatchStream, Source, StreamOptions
from penstock.data.consuming.consumer import Consumer
from penstock.data.offloading.arguments import Built, Leaf
from penstock.data.offloading.batch_calls import BatchCall, BatchCalls, split
from penstock.data.offloading.portable import pack_function
from penstock.data.offloading.surroundings import Surroundings
from penstock.data.pipeline import BatchId, Pipeline, pack_pipeline

WIDTH: Final = 1024
BATCH: Final = 4
TOKEN: Final = "a token of the benchmark"
WAIT_SECONDS: Final = 120.0
WORKER: Final = """
import sys
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.worker import DataWorker, work
address, token = sys.argv[1:]
work(DataWorker(token=token, consumers=(ConsumerEntry(name="program", address=address),)))
"""


class Rows:
    """Samples for the module, which take a while as reading does."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.full((WIDTH,), index / 1000)


def chain(mib: int, seed: int) -> torch.nn.Module:
    """So many MiB of linear layers, frozen."""
    torch.manual_seed(seed)
    count = max(1, mib * (1 << 20) // (WIDTH * WIDTH * 4))
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(count)]
    return torch.nn.Sequential(*layers).eval().requires_grad_(requires_grad=False)


@contextmanager
def data_workers(consumer: Consumer, folders: list[Path]) -> Iterator[None]:
    """Data workers, each with a folder for weights, once they have connected."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, consumer.address, TOKEN],
            env={**os.environ, names.WEIGHTS_DIR: str(folder)},
        )
        for folder in folders
    ]
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while len(consumer.workers) < len(folders):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(consumer.workers)} of {len(folders)} data workers came")
            time.sleep(0.01)
        yield
    finally:
        programs.kill(*processes)


def measure(module: torch.nn.Module, name: str, folders: list[Path], steps: int) -> dict[str, Any]:
    """One row."""
    function = pack_function(module)
    assert function.weights is not None, "the module is large"
    positional = Built(tuple, (), (Leaf(()),))
    call = BatchCall(0, function, positional, Built(dict, (), ()), Surroundings.here())
    raw = Pipeline(Rows(), default_collate)
    sent = Pipeline(Rows(), default_collate, batch_stage=BatchCalls((call,)))
    packed = pack_pipeline(sent, TOKEN)
    source = Source(raw, b"", lambda: packed, at_once=True)
    indices = ([(step * BATCH + one) % 1000 for one in range(BATCH)] for step in itertools.count())
    came, equal, first, began = 0, 0, 0.0, 0.0
    with ExitStack() as stack:
        consumer = stack.enter_context(closing(Consumer(token=TOKEN, share_memory=False)))
        stack.enter_context(data_workers(consumer, folders))
        began = time.perf_counter()
        stream = BatchStream(
            consumer, source, 1, BatchId("train", 0, 0, 0), indices, StreamOptions(), []
        )
        stack.enter_context(closing(stream))
        while came < steps and time.perf_counter() - began < WAIT_SECONDS:
            batch, results = split(next(stream))
            for result in results:
                first = first or time.perf_counter() - began
                came += 1
                equal += not result.why and torch.equal(result.value, module(batch))
        seconds = time.perf_counter() - began
        sent_bytes = consumer.counts.weight_bytes
    return {
        "workers": name,
        "weights_mib": round(function.weights.size / (1 << 20), 1),
        "pickled_kib": round(len(packed.blob) / 1024, 1),
        "sent_mib": round(sent_bytes / (1 << 20), 1),
        "sent_times": round(sent_bytes / function.weights.size, 3),
        "first_seconds": round(first, 2),
        "seconds": round(seconds, 2),
        "results": came,
        "equal": equal,
    }


def run(mib: int, steps: int, seed: int) -> tuple[list[dict[str, Any]], list[Goal]]:
    """The rows, and their goals."""
    module, goals, rows = chain(mib, seed), [], []
    cases = (
        ("1", ["a"], 1),
        ("2 of one node", ["a", "a"], 1),
        ("2 of two nodes", ["a", "b"], 2),
    )
    for name, folders, times in cases:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(module, name, [Path(folder, one) for one in folders], steps)
        rows.append(row)
        goals += [
            at_most(f"data workers: {name}: times weights were sent", times, row["sent_times"]),
            at_least(f"data workers: {name}: results", steps, row["results"]),
            at_most(f"data workers: {name}: results that differ", 0, row["results"] - row["equal"]),
        ]
    return rows, goals


def main() -> int:
    """Run it and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=400)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)  # as data workers compute
    rows, goals = run(options.mib, options.steps, options.seed)
    result = {"seed": options.seed, "load": os.getloadavg()[0], "rows": rows}
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
