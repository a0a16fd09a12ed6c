"""Batches of pictures over slow links: as they are, coded, and cut where they are small.

    python -m benchmarks.coding --json

A data worker makes pictures into normalised floats, the last two stages of nearly every pipeline of
pictures, and sends them to the program through a link of so many bits a second. ``as it is`` and
``coded`` (`penstock.data.serving.link_coding`) send these floats. ``tail local`` is FastFlow's cut
in front of these stages (PVLDB 16(5), section 4.2), by hand: bytes are sent, and the program's
thread applies the stages to each sample and stacks them, as an intercepted program would have to.
All three give the program the same bits. Modes take turns; rates are medians over ``--rounds``.
``cpu`` are seconds of the program's process for a batch.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.goals import Goal, at_least, report
from benchmarks.links import Link
from penstock.crds import environment as names
from penstock.data import Loader
from penstock.data.consumer import Consumer

GIGABIT: Final = 125e6
LINKS: Final = {"1 Gb/s": GIGABIT, "2.5 Gb/s": 2.5 * GIGABIT, "as fast as it is": 0.0}
MODES: Final = ("as it is", "coded", "tail local")
BATCH: Final = 64
SKIPPED: Final = 12
COUNTED: Final = 24
TOKEN: Final = "a token of this benchmark"
_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
_SCALE: Final = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]
_WORKER: Final = """
import sys
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.worker import DataWorker, work
entry = ConsumerEntry(name="program", address=sys.argv[1], local="")
work(DataWorker(token=sys.argv[2], consumers=(entry,)))
"""


def normalised(picture: np.ndarray) -> np.ndarray:
    """As ToTensor and Normalize have it."""
    floats: np.ndarray = picture.transpose(2, 0, 1).astype(np.float32) / np.float32(255)
    return (floats - _MEAN) / _SCALE


class Pictures:
    """Decoded pictures of 160 by 160, of 64 that are kept."""

    def __init__(self, *, floats: bool) -> None:
        source = np.random.default_rng(5)
        coarse = source.integers(0, 256, (64, 20, 20, 3), np.uint8)
        smooth = coarse.repeat(8, 1).repeat(8, 2).astype(np.int16)
        noise = source.integers(-9, 10, smooth.shape, np.int16)
        self._kept = np.clip(smooth + noise, 0, 255).astype(np.uint8)
        self._floats = floats

    def __len__(self) -> int:
        return BATCH * (SKIPPED + COUNTED)

    def __getitem__(self, index: int) -> np.ndarray:
        picture = self._kept[index % len(self._kept)]
        found: np.ndarray = normalised(picture) if self._floats else picture
        return found


@contextmanager
def linked(address: str, bytes_per_second: float) -> Iterator[str]:
    """The address at which ``address`` is behind a slow link; itself where it is none."""
    if not bytes_per_second:
        yield address
        return
    loop, link = asyncio.new_event_loop(), Link()
    link.bytes_per_second = bytes_per_second
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(link.listen(), loop).result(10)
        yield link.address(address)
    finally:
        asyncio.run_coroutine_threadsafe(link.aclose(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def epoch(mode: str, bytes_per_second: float) -> dict[str, Any]:
    """One epoch in one mode."""
    consumer = Consumer(token=TOKEN, share_memory=False)
    variables = {**os.environ, names.LINK_CODING: "1" if mode == "coded" else "0"}
    with linked(consumer.address, bytes_per_second) as address:
        command = [sys.executable, "-c", _WORKER, address, TOKEN]
        with subprocess.Popen(command, env=variables) as worker:
            try:
                return _epoch(consumer, mode)
            finally:
                worker.terminate()
                worker.wait(20)
                consumer.close()


def _epoch(consumer: Consumer, mode: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while not consumer.workers:
        if time.monotonic() > deadline:
            raise RuntimeError("no data worker came")
        time.sleep(0.01)
    pictures = Pictures(floats=mode != "tail local")
    loader = Loader(pictures, BATCH, seed=1, consumer=consumer)
    digest, begun, used, received = hashlib.sha256(), 0.0, 0.0, 0
    for number, arrived in enumerate(loader):
        batch = arrived
        if mode == "tail local":
            batch = np.stack([normalised(one) for one in arrived])
        if number < SKIPPED:
            digest.update(batch.tobytes())  # the rest costs more than it tells
        if number == SKIPPED - 1:
            begun, used = time.monotonic(), _cpu_seconds()
            received = consumer.counts.received_bytes
    seconds = time.monotonic() - begun
    return {
        "rate": COUNTED / seconds,
        "wire": (consumer.counts.received_bytes - received) / COUNTED,
        "cpu": (_cpu_seconds() - used) / COUNTED,
        "digest": digest.hexdigest(),
    }


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Measure all modes over all links."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    source, load = random.Random(options.seed), [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    digests: set[str] = set()
    for link, speed in LINKS.items():
        found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
        for _ in range(options.rounds):
            for mode in source.sample(MODES, len(MODES)):
                found[mode].append(epoch(mode, speed))
        rates = {mode: median(one["rate"] for one in found[mode]) for mode in MODES}
        for mode in MODES:
            digests |= {one["digest"] for one in found[mode]}
            rows.append(
                {
                    "link": link,
                    "mode": mode,
                    "batches_per_second": round(rates[mode], 2),
                    "megabytes_a_batch": round(median(o["wire"] for o in found[mode]) / 1e6, 2),
                    "cpu": round(median(o["cpu"] for o in found[mode]), 4),
                }
            )
        least = 2.0 if link == "1 Gb/s" else 0.97
        ratio = round(rates["coded"] / rates["as it is"], 3)
        goals.append(at_least(f"coded by as it is, {link}", least, ratio))
    goals.append(at_least("modes and links with the same bits", 1, 1 / len(digests)))
    load.append(os.getloadavg()[0])
    result = {"seed": options.seed, "load": load, "rows": rows}
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
