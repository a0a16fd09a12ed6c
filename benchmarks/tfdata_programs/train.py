"""The program of `benchmarks.tfdata`: takes what an input system gives it, and counts.

    train.py SYSTEM FOLDER EPOCHS KILL

SYSTEM: ``plain`` is tf.data in this process, ``penstock`` what ``penstock run`` feeds it (with data
workers or without), ``service`` the real tf.data service with two workers. ``KILL``: 1: in the
middle of the last epoch a worker is killed with -9; it is started again. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "PENSTOCK_TFDATA_RUN"
"""Variable by which the processes of a run are known."""
WORKERS = 2
SILENT_SECONDS = 90.0
_TICK = os.sysconf("SC_CLK_TCK")


def processes() -> dict[int, tuple[str, float]]:
    """The processes of this run: their command lines and CPU seconds."""
    mark, found = f"{MARK}={os.environ[MARK]}".encode(), {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            if mark not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            rest = (folder / "stat").read_text().rpartition(")")[2].split()
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        found[int(folder.name)] = line, sum(map(int, rest[11:15])) / _TICK
    return found


class Service:
    """A dispatcher in this process and workers in others."""

    def __init__(self) -> None:
        import tensorflow as tf

        self._service = tf.data.experimental.service
        config = self._service.DispatcherConfig(worker_timeout_ms=3000)
        self._dispatcher = self._service.DispatchServer(config)
        self.target = self._dispatcher.target
        self._workers = [self._start() for _ in range(WORKERS)]
        for one in self._workers:  # they are up, and have registered
            assert one.stdout is not None
            one.stdout.readline()

    def _start(self) -> subprocess.Popen[bytes]:
        address = self.target.split("://")[1]
        command = [sys.executable, "-W", "ignore", __file__, "worker", address]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    def kill(self) -> None:
        """Kill -9, and start another one."""
        self._workers[0].kill()
        self._workers[0].wait()
        self._workers.append(self._start())

    def close(self) -> None:
        """End the workers."""
        for one in self._workers:
            one.kill()
            one.wait()

    def epochs(self, files: list[str]) -> Any:
        """A data set that is one epoch whenever it is iterated."""
        import tensorflow as tf

        return (
            plain(files)
            .apply(
                self._service.distribute(
                    processing_mode=self._service.ShardingPolicy.DYNAMIC,
                    service=self.target,
                    compression=None,
                )
            )
            .prefetch(tf.data.AUTOTUNE)
        )


def serve(address: str) -> None:
    """A worker of the service."""
    import tensorflow as tf

    service = tf.data.experimental.service
    config = service.WorkerConfig(dispatcher_address=address, heartbeat_interval_ms=500)
    server = service.WorkerServer(config)
    print("up", flush=True)
    server.join()


def plain(files: list[str]) -> Any:
    """The same with tf.data alone: as many files at a time as `distribute` has."""
    import tensorflow as tf

    from benchmarks.tfdata_programs.pipeline import make_dataset

    found = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files))
    return found.interleave(make_dataset, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE)


def kill_data_worker() -> None:
    """Kill -9; ``penstock run`` starts another one."""
    pid = next(
        pid for pid, (line, _) in processes().items() if "penstock.data.worker_process" in line
    )
    os.kill(pid, 9)


def measured(epoch: Iterator[Any], wanted: int, kill: Any) -> dict[str, Any]:
    """What came of one epoch; gives up when nothing comes any more."""
    seen: Counter[int] = Counter()
    state: dict[str, Any] = {
        "elements": 0,
        "bytes": 0,
        "longest": 0.0,
        "last": time.monotonic(),
        "error": "",
    }
    over = threading.Event()

    def take() -> None:
        killed = kill is None
        try:
            for element in epoch:
                now = time.monotonic()
                state["longest"] = max(state["longest"], now - state["last"])
                state["last"] = now
                state["elements"] += 1
                state["bytes"] += element["picture"].numpy().nbytes
                seen.update(element["number"].numpy().tolist())
                if not killed and seen.total() > 0.4 * wanted:
                    killed = True
                    kill()
        except Exception as error:  # noqa: BLE001 - what the library says is part of the row
            state["error"] = " ".join(str(error).split())[:300]
        over.set()

    began, before = time.monotonic(), sum(spent for _, spent in processes().values())
    threading.Thread(target=take, daemon=True).start()
    while not over.wait(0.5) and time.monotonic() - state["last"] < SILENT_SECONDS:
        pass
    seconds = time.monotonic() - began
    spent = sum(spent for _, spent in processes().values()) - before
    return {
        "ended": over.is_set() and not state["error"],
        "error": state["error"],
        "seconds": seconds,
        "cpu_seconds": spent,
        "elements": state["elements"],
        "bytes": state["bytes"],
        "longest_wait_seconds": round(state["longest"], 2),
        "lost": sum(seen[number] == 0 for number in range(wanted)),
        "repeated": seen.total() - len(seen),
    }


def main(system: str, folder: str, epochs: int, kills: bool, wanted: int) -> None:
    files = sorted(map(str, Path(folder).glob("*.tfrecord")))
    service = Service() if system == "service" else None
    kill: Any = None
    if service is not None:
        data, kill = service.epochs(files), service.kill
    elif system == "penstock":
        from benchmarks.tfdata_programs.pipeline import make_dataset
        from penstock.data.tensorflow import distribute

        data, kill = distribute(make_dataset, shards=files), kill_data_worker
    else:
        data = plain(files)
    rows = []
    for epoch in range(epochs):
        last = kills and epoch == epochs - 1
        rows.append(measured(iter(data), wanted, kill if last else None))
    print(json.dumps(rows), flush=True)
    if service is not None:
        service.close()
        os._exit(0)  # an epoch that does not end holds its thread for ever


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    if sys.argv[1] == "worker":
        serve(sys.argv[2])
    elif sys.argv[1] == "write":
        from benchmarks.tfdata_programs.pipeline import write_files

        write_files(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1", int(sys.argv[5]))
