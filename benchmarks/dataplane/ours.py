"""Penstock as a system: a consumer here, a data worker on the other core.

The whole way of a batch is measured: request, window, ledger, seeding, frame, arrays.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import programs
from benchmarks.dataplane.measure import (
    CONSUMER_CORE,
    PRODUCER_CORE,
    Request,
    pin,
    ready_batch,
    serve,
)
from benchmarks.dataplane.workloads import BATCH, KINDS, collate
from penstock.crds import environment as names
from penstock.data.allocator import ALLOCATOR
from penstock.data.consuming.batch_stream import Batches, BatchStream, Source, StreamOptions
from penstock.data.consuming.consumer import Consumer
from penstock.data.pipeline import BatchId, Pipeline, pack_pipeline
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.worker import DataWorker, work
from penstock.data.transport import handshake

TOKEN = "benchmark"


class Ready:
    """A dataset whose batches are there already."""

    def __init__(self, size: int, tensors: int) -> None:
        self.shape = size, tensors
        self.batch: dict[str, Any] | None = None

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.batch is None:
            self.batch = ready_batch(*self.shape)
        return self.batch


def unchanged(batch: Any) -> Any:
    """Collates what is a batch already."""
    return batch


def endless() -> Iterator[int]:
    """Indices without an end."""
    index = 0
    while True:
        yield index
        index += 1


def made_of(wanted: Request) -> tuple[Pipeline, Iterator[Any]]:
    """The pipeline of a request, and what it is to be asked for."""
    if "workload" not in wanted:
        return Pipeline(
            Ready(wanted["bytes"], wanted["tensors"]), unchanged, batched=False
        ), endless()
    kind, size = wanted["workload"], BATCH[wanted["workload"]]
    indices = ([number * size + one for one in range(size)] for number in endless())
    return Pipeline(KINDS[kind](), collate), indices


def set_seals(transport: str) -> None:
    """How the frames of this process are sealed; both ends are told alike."""
    if transport == "bare":
        patched: Any = handshake
        patched._nearby = lambda sock: True  # as on a Unix socket
    elif transport == "encrypted":
        os.environ[names.ENCRYPT_FRAMES] = "1"


def main(transport: str) -> None:
    if transport == "worker":
        set_seals(sys.argv[4])
        pin(PRODUCER_CORE)
        entry = ConsumerEntry(name="benchmark", address=sys.argv[2], local=sys.argv[3])
        work(DataWorker(token=TOKEN, consumers=(entry,)))
        return
    set_seals(transport)
    pin(CONSUMER_CORE)
    consumer = Consumer(token=TOKEN)
    local = consumer.local if transport == "shm" else ""
    module = "benchmarks.dataplane.ours"
    command = [sys.executable, "-m", module, "worker", consumer.address, local, transport]
    producer = subprocess.Popen(command, env={**os.environ, **ALLOCATOR})
    while not consumer.workers:
        time.sleep(0.05)

    def start(wanted: Request) -> Iterator[Any]:
        pipeline, indices = made_of(wanted)
        source = Source(pipeline, b"", lambda: pack_pipeline(pipeline, TOKEN), at_once=True)
        name = BatchId("benchmark", 0, 0, 0)
        stream = BatchStream(consumer, source, 1, name, indices, StreamOptions(), [])
        batches = Batches(stream)
        before = consumer.counts.arrived
        while consumer.counts.arrived < before + 8:  # until then it makes its own
            next(batches)
        yield from batches

    try:
        serve(start)
    finally:
        programs.end(producer)
        consumer.close()


if __name__ == "__main__":
    main(sys.argv[1])
