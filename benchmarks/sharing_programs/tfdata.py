"""tf.data service with its cross-trainer cache: servers, or one of the consumers that share it.

The dataset has no end, since the service refuses the cache for one that has. It is the same Python
code as ours, by way of ``tf.numpy_function``; a worker finds such a function by its number within
its process, so every process makes the dataset in the same way.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dataplane.workloads import KINDS

LIMIT_SECONDS = 300.0


def dataset_of(samples: int, batch: int, seed: int) -> Any:
    """Batches of pixels and indices, in a new order every epoch, without end."""
    import tensorflow as tf

    source = KINDS["jpeg"]()

    def made(indices: Any) -> Any:
        pixels = np.stack([source[int(index)][0] for index in indices])
        return pixels, indices

    def of(indices: Any) -> Any:
        return tf.numpy_function(made, [indices], [tf.uint8, tf.int64])

    options = tf.data.Options()
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    endless = tf.data.Dataset.range(samples).shuffle(samples, seed=seed).repeat()
    return endless.batch(batch).map(of).with_options(options)


def servers(samples: int, batch: int, seed: int) -> None:
    """Dispatcher and worker; prints the address, and CPU seconds for each line that it reads."""
    import tensorflow as tf

    dispatcher = tf.data.experimental.service.DispatchServer()
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=dispatcher.target.split("://")[1]
        )
    )
    kept = dataset_of(samples, batch, seed)
    print(json.dumps({"target": dispatcher.target}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"cpu_seconds": time.process_time()}), flush=True)
    del worker, kept


def consumer(target: str, number: int, samples: int, batch: int, seed: int, folder: Path) -> None:
    """Take as many samples as two epochs have; prints indices and CPU seconds."""
    import tensorflow as tf

    wanted = json.loads((folder / "wanted.json").read_text())
    service = tf.data.experimental.service
    shared = dataset_of(samples, batch, seed).apply(
        service.distribute(
            processing_mode=service.ShardingPolicy.OFF,
            service=target,
            job_name="search",
            compression=None,
            cross_trainer_cache=service.CrossTrainerCache(trainer_id=f"job-{number}"),
        )
    )
    progress = folder / f"job-{number}.batches"
    (folder / f"ready-{number}").touch()
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (folder / "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody said that all may begin")
        time.sleep(0.02)
    begun, cpu, before_first = time.monotonic(), time.process_time(), 0.0
    seen: list[int] = []
    batches = shared.take(wanted["epochs"] * samples // batch)
    for count, (_, indices) in enumerate(batches, start=1):
        before_first = before_first or time.process_time() - cpu
        seen += indices.numpy().tolist()
        progress.write_text(str(count))
        time.sleep(wanted["step_seconds"])
    result = {
        "seen": seen,
        "seconds": time.monotonic() - begun,
        "cpu_seconds": time.process_time() - cpu,
        "cpu_seconds_before_first": before_first,
    }
    print(json.dumps(result), flush=True)
    sys.stdout.flush()
    os._exit(0)  # threads of the service would keep the process


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    role, *rest = sys.argv[1:]
    if role == "servers":
        servers(*map(int, rest))
    else:
        address, own, count, size, drawn, place = rest
        consumer(address, int(own), int(count), int(size), int(drawn), Path(place))
