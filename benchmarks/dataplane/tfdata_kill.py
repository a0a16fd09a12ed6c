"""One finite epoch of tf.data service while its processes are killed and started again.

Dynamic sharding, the mode that hands each element to one worker, and a dispatcher in its fault
tolerant mode, which is killed too. The consumer is not: it has no checkpoint of such a data set.
Prints what came of the elements, and gives up on an epoch that does not end.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import Any

from benchmarks import programs

GIVE_UP_SECONDS = 60.0
DEADLINE_SECONDS = 150.0
WEIGHTS = {"dispatcher": 2, "worker-0": 4, "worker-1": 4}
"""How often each is killed: as in `benchmarks.kill`, less the consumer."""


def dispatcher(port: int, folder: str) -> None:
    """The dispatcher's process."""
    import tensorflow as tf

    server = tf.data.experimental.service.DispatchServer(
        tf.data.experimental.service.DispatcherConfig(
            port=port, work_dir=folder, fault_tolerant_mode=True, worker_timeout_ms=3000
        )
    )
    server.join()


def worker(address: str) -> None:
    """A worker's process."""
    import tensorflow as tf

    server = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=address, heartbeat_interval_ms=500, dispatcher_timeout_ms=30_000
        )
    )
    server.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Epoch:
    """The elements that a consumer in a thread of this process has got."""

    def __init__(self, target: str, samples: int) -> None:
        self.seen: Counter[int] = Counter()
        self.over = threading.Event()
        self.error = ""
        self.last, self.stall = time.monotonic(), 0.0
        threading.Thread(target=self._consume, args=(target, samples), daemon=True).start()

    def _consume(self, target: str, samples: int) -> None:
        import tensorflow as tf

        dataset = tf.data.Dataset.range(samples).map(slow, num_parallel_calls=1)
        try:
            dataset = dataset.apply(
                tf.data.experimental.service.distribute(
                    processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
                    service=target,
                    compression=None,
                )
            )
            for element in dataset:
                now = time.monotonic()
                if self.seen:
                    self.stall = max(self.stall, now - self.last)
                self.last = now
                self.seen[int(element)] += 1
        except tf.errors.OpError as error:
            self.error = str(error)[:300]
        else:
            self.over.set()


def main(kills: int, seed: int, samples: int) -> None:
    chance, killed = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        address = f"127.0.0.1:{port}"
        ours = [sys.executable, "-m", "benchmarks.dataplane.tfdata_kill"]
        commands = {
            "dispatcher": [*ours, "dispatcher", str(port), folder],
            "worker-0": [*ours, "worker", address],
            "worker-1": [*ours, "worker", address],
        }

        def start(name: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen(commands[name], stderr=subprocess.DEVNULL)

        running = {name: start(name) for name in commands}
        began = time.monotonic()
        epoch = Epoch(f"grpc://{address}", samples)
        while not epoch.over.wait(chance.uniform(0.3, 1.7)) and not epoch.error:
            now = time.monotonic()
            if sum(killed.values()) < kills and epoch.seen and now - began < DEADLINE_SECONDS:
                [name] = chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))
                programs.kill(running[name])
                killed[name.partition("-")[0]] += 1
                running[name] = start(name)
            elif now - epoch.last > GIVE_UP_SECONDS:
                break
        stall = epoch.stall if epoch.over.is_set() else time.monotonic() - epoch.last
        result: dict[str, Any] = {
            "samples": samples,
            "kills": sum(killed.values()),
            "killed": dict(killed),
            "lost": sum(epoch.seen[index] == 0 for index in range(samples)),
            "repeated": sum(max(0, epoch.seen[index] - 1) for index in range(samples)),
            "epoch_ended": epoch.over.is_set(),
            "longest_stall_seconds": round(max(epoch.stall, stall), 1),
            "seconds": round(time.monotonic() - began, 1),
        }
        if epoch.error:
            result["error"] = epoch.error
        programs.kill(*running.values())
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
    what, *rest = sys.argv[1:]
    if what == "dispatcher":
        dispatcher(int(rest[0]), rest[1])
    elif what == "worker":
        worker(rest[0])
    else:
        main(int(what), int(rest[0]), int(rest[1]))
