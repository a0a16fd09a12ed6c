"""tf.data service's coordinated reads: steps of batches of one bucket, for several ranks.

    python -m benchmarks.dataplane.tfdata_rounds read LENGTHS RANKS WIDTH LONGEST BATCH STEPS SEED
    python -m benchmarks.dataplane.tfdata_rounds kill LENGTHS RANKS WIDTH LONGEST BATCH STEPS SEED

As its documentation has it: batches by length, windows of as many batches of one bucket as there
are ranks, and a job that the ranks read in rounds. An element is the lengths of a batch's samples:
that is what padding depends on. ``STEPS`` of 0 is a dataset with an end, of which nothing is
repeated. ``kill`` has ranks that are processes, kills one of them with -9 and starts it again.

Prints what each rank got, or what was said instead. Runs where TensorFlow is, without Penstock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from benchmarks import programs

LIMIT_SECONDS = 60.0
KILLED_AFTER = 20
GO_ON = 20
"""Rounds that all ranks are to have after the kill."""


def dataset_of(
    lengths: Any, ranks: int, width: int, longest: int, batch: int, seed: int, *, endless: bool
) -> Any:
    """Batches of lengths; as many of a bucket as there are ranks come one after the other."""
    import tensorflow as tf

    upper = list(range(width, longest, width))
    found = tf.data.Dataset.from_tensor_slices(lengths.astype(np.int64))
    found = found.shuffle(len(lengths), seed=seed)
    if endless:
        found = found.repeat()
    found = found.bucket_by_sequence_length(
        lambda length: tf.cast(length, tf.int32),
        [one + 1 for one in upper],
        [batch] * (1 + len(upper)),
    )
    bounds = tf.constant(upper, tf.int64)
    return found.group_by_window(
        key_func=lambda one: tf.reduce_sum(tf.cast(one[0] > bounds, tf.int64)),
        reduce_func=lambda _, window: window,
        window_size=ranks,
    )


def of_rank(dataset: Any, target: str, rank: int, ranks: int) -> Any:
    """The part of a rank in each round."""
    import tensorflow as tf

    return dataset.apply(
        tf.data.experimental.service.distribute(
            processing_mode="parallel_epochs",
            service=target,
            job_name="rounds",
            consumer_index=rank,
            num_consumers=ranks,
            compression=None,
        )
    )


def text_of(error: Exception) -> str:
    """What the library says, without the names of its own operations."""
    text = " ".join(str(error).split()).rpartition("}} ")[2]
    return f"{type(error).__name__}: {text[:400]}"


def servers() -> tuple[Any, ...]:
    """A dispatcher and a worker in this process."""
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    worker = service.WorkerServer(
        service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1])
    )
    return dispatcher, worker


def read(dataset: Any, ranks: int, steps: int) -> dict[str, Any]:
    """All ranks in threads of this process; without an end to read to, until the dataset's."""
    kept = servers()
    got: list[list[Any]] = [[] for _ in range(ranks)]
    said: list[str] = []

    def consume(rank: int) -> None:
        try:
            for element in of_rank(dataset, kept[0].target, rank, ranks):
                got[rank].append(element.numpy().tolist())
                if steps and len(got[rank]) == steps:
                    return
        except Exception as error:  # noqa: BLE001 - whatever the library says is what is asked for
            said.append(text_of(error))

    threads = [threading.Thread(target=consume, args=(rank,), daemon=True) for rank in range(ranks)]
    for one in threads:
        one.start()
    deadline = time.monotonic() + LIMIT_SECONDS
    for one in threads:
        one.join(0.5 if said else max(0.0, deadline - time.monotonic()))
    ended = not any(one.is_alive() for one in threads) and not said
    silent = "" if ended or said else f"no end, and no error, within {LIMIT_SECONDS:.0f} s"
    return {"ended": ended, "error": said[0] if said else silent, "batches": got}


class Rank:
    """A rank that is a process, and what it printed."""

    def __init__(self, arguments: list[str], target: str, rank: int) -> None:
        module = [sys.executable, "-W", "ignore", "-m", "benchmarks.dataplane.tfdata_rounds"]
        self._process = subprocess.Popen(
            [*module, "rank", *arguments, target, str(rank)], stdout=subprocess.PIPE, text=True
        )
        self.rounds, self.error = 0, ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("error "):
                self.error = line.removeprefix("error ").strip()
            else:
                self.rounds += 1

    def kill(self) -> None:
        """Kill -9."""
        programs.kill(self._process)
        self._thread.join(5)


def kill(arguments: list[str], ranks: int) -> dict[str, Any]:
    """Kill the last rank in the middle, start it again, and see whether all go on."""
    kept = servers()
    target = kept[0].target
    running = [Rank(arguments, target, rank) for rank in range(ranks)]
    try:
        begun = _until(lambda: min(one.rounds for one in running) >= KILLED_AFTER, running)
        if not begun:
            return {"went_on": False, "error": "it did not begin: " + _errors(running)}
        running[-1].kill()
        at = max(one.rounds for one in running)
        running[-1] = Rank(arguments, target, ranks - 1)
        began = time.monotonic()
        went_on = _until(
            lambda: (
                running[-1].rounds >= GO_ON
                and min(one.rounds for one in running[:-1]) >= at + GO_ON
            ),
            running,
        )
        error = _errors(running)
        if not went_on and not error:
            error = f"nobody got a batch any more, within {LIMIT_SECONDS:.0f} s"
        return {
            "went_on": went_on,
            "error": error,
            "rounds_of_others_after_the_kill": min(one.rounds for one in running[:-1]) - at,
            "seconds": round(time.monotonic() - began, 1),
        }
    finally:
        for one in running:
            one.kill()


def _errors(running: list[Rank]) -> str:
    return next((one.error for one in reversed(running) if one.error), "")


def _until(true: Any, running: list[Rank]) -> bool:
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        if true():
            return True
        if any(one.error for one in running):
            return False
        time.sleep(0.05)
    return False


def main(what: str, arguments: list[str]) -> None:
    numbers = list(map(int, arguments[1:7]))
    ranks, width, longest, batch, steps, seed = numbers
    if what == "kill":
        print(json.dumps(kill(arguments[:7], ranks)), flush=True)
        os._exit(0)  # threads of a job that does not go on are held for ever
    lengths = np.load(arguments[0])
    dataset = dataset_of(lengths, ranks, width, longest, batch, seed, endless=steps > 0)
    if what == "read":
        print(json.dumps(read(dataset, ranks, steps)), flush=True)
        os._exit(0)
    target, rank = arguments[7], int(arguments[8])
    try:
        for _ in of_rank(dataset, target, rank, ranks):
            print("round", flush=True)
            time.sleep(0.02)
    except Exception as error:  # noqa: BLE001 - whatever the library says is what is asked for
        print("error", text_of(error), flush=True)
        os._exit(1)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    main(sys.argv[1], sys.argv[2:])
