"""A training program for `benchmarks.offload`: it trains for a while whenever it is told to.

It knows nothing of Penstock but where its counts are. Each line of its input names a loader, a half
of its samples and a time; each line of its output says how fast it was. One process does so for all
runs, since to begin one takes longer than a run.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, SubsetRandomSampler

from benchmarks.offloading.datasets import Placed, permit, settle
from benchmarks.stalls_programs.train import Files, write_files

LONG = 20_000
"""Batches of an epoch, of which no run takes all."""
RECEIVING = 32
"""Batches that have come and still cost their receiver something."""


@dataclass
class Workload:
    """A loader and its training step.

    Attributes:
        halves: of the samples: those to calibrate with, and those to be judged on.
        receive_seconds: of a core here, for a batch that was made elsewhere (permits).
    """

    name: str
    dataset: Placed
    step_seconds: float
    batch: int
    workers: int
    receive_seconds: float
    halves: list[list[int]]
    generator: torch.Generator = field(default_factory=torch.Generator)
    loaders: dict[int, Any] = field(default_factory=dict)

    def loader(self, half: int) -> Any:
        """Of one half of the samples, in a random order."""
        if half not in self.loaders:
            indices = self.halves[half]
            repeated = indices * -(-LONG * self.batch // len(indices))
            self.loaders[half] = DataLoader(
                self.dataset,
                batch_size=self.batch,
                sampler=SubsetRandomSampler(repeated, generator=self.generator),
                num_workers=self.workers,
            )
        return self.loaders[half]


def workload_of(name: str, given: dict[str, Any], folder: Path, seed: int) -> Workload:
    """As the setup describes it; ``seed`` divides the samples."""
    given = dict(given)
    kind = given.pop("kind")
    plain = {key: given.pop(key) for key in ("step_seconds", "batch", "workers", "receive_seconds")}
    files = None
    if kind != "permits":
        write_files(folder / kind, kind)
        files = Files(folder / kind, kind)
    dataset = Placed(str(folder), files=files, **given)
    order = np.random.default_rng(seed).permutation(len(dataset)).tolist()
    middle = len(order) // 2
    return Workload(name, dataset, **plain, halves=[order[:middle], order[middle:]])


def counted() -> dict[str, float]:
    """What Penstock has counted in this process; nothing where it runs without."""
    found = {"training_cpu": time.process_time(), "local_busy": 0.0, "remote": 0.0, "workers": 0.0}
    if "PENSTOCK_DATA_ADDRESS" not in os.environ:
        return found
    from penstock.data.consuming.process import consumer_of_process

    if (consumer := consumer_of_process()) is not None:
        found["local_busy"] = consumer.counts.local.seconds
        found["remote"] = float(consumer.counts.arrived)
        found["workers"] = float(len(consumer.workers))
    return found


def train(workload: Workload, half: int, seconds: float, skipped: float) -> dict[str, float]:
    """Train for so long; the first ``skipped`` seconds are not counted."""
    loader = workload.loader(half)
    folder, cost = workload.dataset.folder, workload.receive_seconds
    received: queue.Queue[bool] = queue.Queue(RECEIVING)
    if cost:
        threading.Thread(target=_receive, args=(received, folder, cost), daemon=True).start()
    began = before = None
    batches, waited = 0, 0.0
    start = asked = time.perf_counter()
    for batch in loader:
        now = time.perf_counter()
        waited += now - asked
        if cost and batch[0, 0] > 0.5:
            received.put(True)
        time.sleep(workload.step_seconds)
        batches += 1
        asked = time.perf_counter()
        if began is None and asked - start >= skipped and batches >= 16:
            began, batches, waited, before = asked, 0, 0.0, counted()
        elif began is not None and asked - began >= seconds:
            break
    received.put(False)
    assert began is not None, "an epoch is longer than a run"
    assert before is not None, "it was counted then"
    length, after = asked - began, counted()
    return {
        "rate": batches / length,
        "waited": waited / length,
        "remote": min(1.0, (after["remote"] - before["remote"]) / batches),
        "training_cpu": (after["training_cpu"] - before["training_cpu"]) / batches,
        "local_busy": (after["local_busy"] - before["local_busy"]) / batches,
        "workers": after["workers"],
    }


def _receive(received: queue.Queue[bool], folder: str, seconds: float) -> None:
    """Hold a core for what it costs to receive the batches that have come."""
    while received.get():
        count = 1
        while not received.empty():
            if not received.get():
                return
            count += 1
        with permit(folder, "local"):
            time.sleep(count * seconds)


def main() -> None:
    """Answer one order after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--setup", type=Path, required=True)
    setup = json.loads(parser.parse_args().setup.read_text())
    torch.set_num_threads(1)
    folder = Path(setup["folder"])
    workloads = {
        name: workload_of(name, given, folder, setup["seed"])
        for name, given in setup["workloads"].items()
    }
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        settle(str(folder), setup["permits"])
        os.environ.pop("PENSTOCK_DATA_SHARE", None)
        if order["share"] is not None:
            os.environ["PENSTOCK_DATA_SHARE"] = str(order["share"])
        workload = workloads[order["workload"]]
        workload.generator.manual_seed(order["seed"])
        done = train(workload, order["half"], order["seconds"], order["skipped"])
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
