"""Batches over slow links: as they are, coded, compressed, and cut where they are small.

    python -m benchmarks.coding --json

A data worker makes pictures into normalised floats, the last two stages of nearly every pipeline of
pictures, and sends them to the program through a link of so many bits a second. ``as it is`` and
``coded`` (`penstock.data.serving.link_coding`) send these floats. ``tail local`` is FastFlow's cut
in front of these stages (PVLDB 16(5), section 4.2), by hand: bytes are sent, and the program's
thread applies the stages to each sample and stacks them, as an intercepted program would have to.
``zstd`` compresses every batch (``input.compression: Zstd``). All give the program the same bits.
Modes take turns; rates are medians over ``--rounds``. ``cpu`` are seconds of the program's process
for a batch. ``codings`` are both codings of batches of several kinds, without a link: CPU-seconds
per GB of arrays at each end, and how many times smaller they become; ``zstd loses`` says over which
links, and for which kinds against the dictionary, zstd is the worse one.
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

from benchmarks import programs
from benchmarks.goals import Goal, at_least, report
from benchmarks.links import Link
from penstock.base.enums import Compression
from penstock.crds import environment as names
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer
from penstock.data.protocol import InputOptions
from penstock.data.transport import dictionary_coding, zstd_coding
from penstock.data.transport.batch_codec import pack
from penstock.data.transport.codings import Coding
from penstock.data.transport.dictionary_coding import Encoder
from penstock.data.transport.zstd_coding import ZstdEncoder

GIGABIT: Final = 125e6
LINKS: Final = {"1 Gb/s": GIGABIT, "2.5 Gb/s": 2.5 * GIGABIT, "as fast as it is": 0.0}
MODES: Final = ("as it is", "coded", "zstd", "tail local")
BATCH: Final = 64
SKIPPED: Final = 12
COUNTED: Final = 24
TOKEN: Final = "a token of this benchmark"
_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
_SCALE: Final = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]
WORKER: Final = """
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
    variables = {**os.environ, names.LINK_CODING: "1" if mode in ("coded", "zstd") else "0"}
    if mode == "zstd":
        consumer._options = InputOptions(compression=Compression.ZSTD)
    with linked(consumer.address, bytes_per_second) as address:
        command = [sys.executable, "-c", WORKER, address, TOKEN]
        with subprocess.Popen(command, env=variables) as worker:
            try:
                return _epoch(consumer, mode)
            finally:
                programs.end(worker)
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


def kinds() -> dict[str, np.ndarray]:
    """Arrays of what trainings are fed with, of some megabytes."""
    source, pictures = np.random.default_rng(7), Pictures(floats=True)
    floats = np.stack([pictures[index] for index in range(BATCH)])
    plain = Pictures(floats=False)
    time_axis = np.arange(64 * 16_000, dtype=np.float32)
    sound = np.sin(time_axis / 40) * 8000 + source.normal(0, 40, len(time_axis))
    words = np.minimum(source.zipf(1.3, (256, 512)), 50_000)
    padded = np.where(np.arange(512) < source.integers(40, 512, (256, 1)), words, 0)
    return {
        "pictures, normalised": floats,
        "pictures, resized as floats": floats
        * source.uniform(0.8, 1.2, (BATCH, 1, 1, 1)).astype(np.float32)
        + source.normal(0, 0.01, floats.shape).astype(np.float32),
        "pictures, bytes": np.stack([plain[index] for index in range(BATCH)]),
        "sound, 16 bits": sound.astype(np.int16),
        "sound, floats": sound.astype(np.float32) / 32768,
        "tokens, padded": padded.astype(np.int64),
        "masks": (padded > 0).astype(np.int64),
    }


def codings(rounds: int) -> list[dict[str, Any]]:
    """Both codings of each kind, in this process."""
    rows: list[dict[str, Any]] = []
    for kind, array in kinds().items():
        packed = pack(array)
        for coding in Coding:
            dictionary, zstd = Encoder(), ZstdEncoder()
            encoding, decoding, size = [], [], packed.size
            for turn in range(rounds + 1):
                begun = time.process_time()
                if coding is Coding.ZSTD:
                    coded = zstd.encode(packed, 1.0)
                else:
                    coded = dictionary.encode(packed)
                encoded = time.process_time()
                if coded is not None:
                    into = np.empty(packed.size, np.uint8)
                    body = b"".join(bytes(memoryview(part)) for part in coded.parts)
                    size, before = coded.size, time.process_time()
                    if coding is Coding.ZSTD:
                        zstd_coding.decode(memoryview(body), into.data)
                    else:
                        dictionary_coding.decode(coded.coding, memoryview(body), into.data)
                    if turn:
                        decoding.append(time.process_time() - before)
                    if into.tobytes() != b"".join(bytes(memoryview(p)) for p in packed.parts):
                        raise RuntimeError(f"{kind}: {coding} changed a bit")
                if turn:  # the first time pages are new and dictionaries are learned
                    encoding.append(encoded - begun)
            gigabytes = packed.size / 1e9
            rows.append(
                {
                    "kind": kind,
                    "coding": str(coding),
                    "ratio": round(packed.size / size, 2),
                    "encode": round(median(encoding) / gigabytes, 2),
                    "decode": round(median(decoding) / gigabytes, 2) if decoding else None,
                }
            )
    return rows


def losses(rates: dict[str, dict[str, float]], found: list[dict[str, Any]]) -> list[str]:
    """Where zstd is the worse one: over which links, and for which kinds."""
    lost = [
        f"{link}: slower than as it is" for link, of in rates.items() if of["zstd"] < of["as it is"]
    ]
    ratios = {(row["kind"], row["coding"]): row["ratio"] for row in found}
    for kind in {row["kind"]: None for row in found}:
        zstd, dictionary = ratios[kind, "zstd"], ratios[kind, "dictionary"]
        if zstd < 1.03:
            lost.append(f"{kind}: nothing to gain")
        elif zstd < dictionary:
            lost.append(f"{kind}: {zstd} times smaller, by the dictionary {dictionary}")
    return lost


def main() -> int:
    """Measure all modes over all links."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--links", default=",".join(LINKS), help="of these, separated by commas; none: codings only"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    source, load = random.Random(options.seed), [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    digests: set[str] = set()
    by_link: dict[str, dict[str, float]] = {}
    chosen = [one for one in options.links.split(",") if one]
    for link, speed in ((one, LINKS[one]) for one in chosen):
        found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
        for _ in range(options.rounds):
            for mode in source.sample(MODES, len(MODES)):
                found[mode].append(epoch(mode, speed))
        rates = {mode: median(one["rate"] for one in found[mode]) for mode in MODES}
        by_link[link] = rates
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
    if digests:
        goals.append(at_least("modes and links with the same bits", 1, 1 / len(digests)))
    load.append(os.getloadavg()[0])
    found_codings = codings(max(3, options.rounds))
    result = {
        "seed": options.seed,
        "load": load,
        "rows": rows,
        "codings": found_codings,
        "zstd loses": losses(by_link, found_codings),
    }
    return report(result, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
