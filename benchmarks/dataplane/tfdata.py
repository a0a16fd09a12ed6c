"""tf.data service, without compression, as a system: its servers on the other core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.dataplane.measure import (
    CONSUMER_CORE,
    PRODUCER_CORE,
    Request,
    pin,
    ready_batch,
    serve,
)


def servers() -> None:
    """Dispatcher and worker; prints the address, ends with its input."""
    pin(PRODUCER_CORE)
    import tensorflow as tf

    dispatcher = tf.data.experimental.service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(dispatcher_address=address)
    )
    print(dispatcher.target, flush=True)
    sys.stdin.read()
    del worker


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
    target = producer.stdout.readline().strip()

    def start(wanted: Request) -> Iterator[Any]:
        batch = ready_batch(wanted["bytes"], wanted["tensors"])
        dataset = tf.data.Dataset.from_tensors(batch).repeat()
        dataset = dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode="parallel_epochs", service=target, compression=None
            )
        )
        yield from dataset

    try:
        serve(start)
    finally:
        producer.kill()
        producer.wait(20)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    servers() if sys.argv[1:] == ["servers"] else main()
