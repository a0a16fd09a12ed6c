"""One training process of `benchmarks.encoders`: prints where it is to be found, then its figures.

``--way step``: the encoders are called in the step, and a data worker makes the pictures.
``stage``: they are a stage of the loader, which a data worker runs. ``none``: what they give was
computed before and lies in memory, so that the step is free of them; nothing is loaded either.
``beside``: the same, and each step says through a pipe that it has begun, for
`benchmarks.encoding.beside`.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import psutil
import torch

from benchmarks.encoding.model import (
    BATCH,
    Pictures,
    Training,
    collated,
    encode,
    encoders,
    weight_bytes,
)
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer
from penstock.data.pipeline import Stage

WAYS: Final = ("step", "stage", "none", "beside")
FREE: Final = ("none", "beside")
"""Of encoders and of a loader."""
SETTLED: Final = 20
"""Steps at the beginning whose time does not count."""
WAIT_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.4
EPOCH: Final = 1000
"""Its order of samples is trained on, however many epochs were given up before it."""


def loader_of(way: str, steps: int, seed: int, consumer: Consumer | None) -> Loader:
    """The pictures of so many steps, encoded or not."""
    stages = [Stage(encode, batched=True)] if way == "stage" else []
    data = Pictures(steps * BATCH)
    return Loader(data, BATCH, seed=seed, stages=stages, collate=collated, consumer=consumer)


def warm(loader: Loader, consumer: Consumer) -> None:
    """Have epochs begun until a data worker makes one, and give that up."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not consumer.workers:
        if time.monotonic() > deadline:
            raise TimeoutError("no data worker came")
        time.sleep(0.02)
    before = consumer.counts.arrived
    while time.monotonic() < deadline:
        for _ in loader:
            if consumer.counts.arrived > before:
                return
            time.sleep(PAUSE_SECONDS)  # else the epoch ends before the data worker has begun
    raise TimeoutError("no batch came from a data worker")


def begin(loader: Loader) -> None:
    """Have its next epoch be the one that is trained on."""
    loader.load_state_dict({**loader.state_dict(), "epoch": EPOCH, "position": 0})


def resident_bytes() -> int:
    """Of this process, once what is free was given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def train(
    way: str, batches: Iterator[Any], steps: int, settled: int, seed: int, tell: int | None
) -> dict[str, Any]:
    """The figures of so many steps, each of which says in ``tell`` that it has begun.

    Those before ``settled`` do not count.

    ``receiving_cpu_seconds`` are those of all other threads, and of asking for the batch.
    """
    training, digest = Training(seed), hashlib.sha256()
    clock: list[float] = []
    before, cpu, own, asking = time.perf_counter(), time.process_time(), time.thread_time(), 0.0
    for step in range(steps):
        if step == settled:
            cpu, own, asking = time.process_time(), time.thread_time(), 0.0
        if tell is not None:
            os.write(tell, b".")
        asked = time.thread_time()
        given = next(batches)
        asking += time.thread_time() - asked
        loss = training.step(encode(given) if way == "step" else given)
        digest.update(float(loss).hex().encode())
        now = time.perf_counter()
        clock.append(now - before)
        before = now
    spent, its = time.process_time() - cpu, time.thread_time() - own
    return {
        "steps": steps,
        "seconds": clock[settled:],
        "cpu_seconds": spent / (steps - settled),
        "receiving_cpu_seconds": (spent - its + asking) / (steps - settled),
        "losses": digest.hexdigest(),
    }


def computed(loader: Loader) -> Iterator[Any]:
    """An epoch whose batches are encoded before it begins."""
    found = [encode(batch) for batch in loader]
    encoders.cache_clear()
    return iter(found)


def main() -> None:
    """Train once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--settled", type=int, default=SETTLED, help="its steps are not timed")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--tell", type=int, help="a pipe's end, which is told of each step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    consumer = None if options.way in FREE else Consumer(token=options.token)
    address = "" if consumer is None else f"{consumer.address} {consumer.local}"
    print(address, flush=True)
    loader = loader_of(options.way, options.steps, options.seed, consumer)
    if consumer is None:
        for _ in loader:
            break
        begin(loader)
        batches = computed(loader)
    else:
        warm(loader, consumer)
        begin(loader)
        if options.way == "stage":
            encoders.cache_clear()  # it was called here until the data worker was ready
        batches = iter(loader)
    found = train(options.way, batches, options.steps, options.settled, options.seed, options.tell)
    found["called_here"] = encoders.cache_info().currsize > 0
    found["resident_bytes"] = resident_bytes()
    found["weight_bytes"] = weight_bytes()
    print(json.dumps(found), flush=True)
    if consumer is not None:
        consumer.close()
    os._exit(0)  # the stream's threads have nothing to finish


if __name__ == "__main__":
    main()
