"""tf.data service, without compression, as a system: its servers on the other core.

Workloads are the same Python code as everybody's, by way of ``tf.numpy_function``. The service
does not carry such functions to its workers, but a worker finds them by their number within its
process; so both processes make the same datasets in the same order.
"""

from __future__ import annotations

import os
import subprocess
import sys
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


def servers() -> None:
    """Dispatcher and worker; prints the address, ends with its input."""
    pin(PRODUCER_CORE)
    import tensorflow as tf

    dispatcher = tf.data.experimental.service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(dispatcher_address=address)
    )
    kept = workloads()
    print(dispatcher.target, flush=True)
    sys.stdin.read()
    del worker, kept


def workloads() -> dict[str, Any]:
    """A dataset of batches for each workload."""
    import tensorflow as tf

    found = {}
    for kind, make in KINDS.items():
        source, size = make(), BATCH[kind]

        def batch(number: int, source: Any = source, size: int = size) -> tuple[Any, Any]:
            first = int(number) * size
            made = collate([source[index] for index in range(first, first + size)])
            return made["x"], made["y"]

        types = [tf.as_dtype(array.dtype) for array in batch(0)]
        found[kind] = tf.data.Dataset.range(1 << 40).map(
            lambda number, batch=batch, types=types: tf.numpy_function(batch, [number], types)
        )
    return found


def main() -> None:
    producer = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.dataplane.tfdata", "servers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pin(CONSUMER_CORE)
    import tensorflow as tf

    assert producer.stdout is not None
    datasets = workloads()
    target = producer.stdout.readline().strip()

    def start(wanted: Request) -> Iterator[Any]:
        if "workload" in wanted:
            dataset = datasets[wanted["workload"]]
        else:
            batch = ready_batch(wanted["bytes"], wanted["tensors"])
            dataset = tf.data.Dataset.from_tensors(batch).repeat()
        options = tf.data.Options()
        options.experimental_external_state_policy = (
            tf.data.experimental.ExternalStatePolicy.IGNORE  # it is a function of the index
        )
        dataset = dataset.with_options(options).apply(
            tf.data.experimental.service.distribute(
                processing_mode="parallel_epochs", service=target, compression=None
            )
        )
        yield from dataset

    try:
        serve(start)
    finally:
        programs.kill(producer)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    servers() if sys.argv[1:] == ["servers"] else main()
