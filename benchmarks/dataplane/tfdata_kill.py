"""One finite epoch of tf.data service while its workers are killed and started again.

Dynamic sharding, the mode that hands each element to one worker; the dispatcher is fault tolerant
and is not killed. Prints what came of the elements, and gives up on an epoch that does not end.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import Any

SAMPLES = 4000
GIVE_UP_SECONDS = 60.0


def worker(address: str) -> None:
    """A worker's process."""
    import tensorflow as tf

    server = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=address, heartbeat_interval_ms=500, dispatcher_timeout_ms=5000
        )
    )
    server.join()


def main(kills: int, seed: int) -> None:
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        dispatcher = tf.data.experimental.service.DispatchServer(
            tf.data.experimental.service.DispatcherConfig(
                work_dir=folder, fault_tolerant_mode=True, worker_timeout_ms=3000
            )
        )
        address = dispatcher.target.split("://")[1]
        command = [sys.executable, "-m", "benchmarks.dataplane.tfdata_kill", "worker", address]

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, stderr=subprocess.DEVNULL)

        workers = [start(), start()]
        dataset = tf.data.Dataset.range(SAMPLES).map(slow, num_parallel_calls=1)
        dataset = dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
                service=dispatcher.target,
                compression=None,
            )
        )
        seen: Counter[int] = Counter()
        over = threading.Event()
        state = {"last": time.monotonic(), "stall": 0.0}

        def consume() -> None:
            for element in dataset:
                now = time.monotonic()
                state["stall"] = max(state["stall"], now - state["last"])
                state["last"] = now
                seen[int(element)] += 1
            over.set()

        threading.Thread(target=consume, daemon=True).start()
        chance, killed = random.Random(seed), 0
        began = time.monotonic()
        while not over.wait(chance.uniform(1.0, 3.0)):
            if killed < kills and seen:
                one = chance.randrange(2)
                workers[one].kill()
                workers[one].wait()
                workers[one] = start()
                killed += 1
            if time.monotonic() - state["last"] > GIVE_UP_SECONDS:
                break
        result = {
            "samples": SAMPLES,
            "kills": killed,
            "lost": sum(seen[index] == 0 for index in range(SAMPLES)),
            "repeated": sum(max(0, seen[index] - 1) for index in range(SAMPLES)),
            "epoch_ended": over.is_set(),
            "longest_stall_seconds": round(
                max(state["stall"], time.monotonic() - state["last"]), 1
            ),
            "seconds": round(time.monotonic() - began, 1),
        }
        for process in workers:
            process.kill()
            process.wait()
        print(json.dumps(result), flush=True)
        os._exit(0)  # an epoch that does not end holds its thread for ever


def slow(index: Any) -> Any:
    """An element that takes a few milliseconds: the service runs TensorFlow's operations only."""
    import tensorflow as tf

    x = tf.random.stateless_uniform((200, 200), seed=(index, 0))
    for _ in range(12):
        x = tf.nn.softmax(tf.matmul(x, x))
    return index + tf.cast(tf.reduce_sum(x) * 0.0, tf.int64)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(sys.argv[2])
    else:
        main(int(sys.argv[1]), int(sys.argv[2]))
