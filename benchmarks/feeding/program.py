"""The training program of `benchmarks.feed`: a DataLoader, a loop, and a clock.

Nothing here knows of Penstock. It reads requests from its standard input, one JSON object a line,
trains for each on the batches that come next, and prints what it measured. Between two requests it
stands still and its loader's queues fill; so each begins with batches that are not counted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.feeding.pipelines import KINDS, make_dataset

EXAMPLE = Path(__file__).parents[2] / "examples" / "imagenet" / "train.py"
PAGE_BYTES = 4096
Step = Callable[[torch.Tensor], None]


def make_step(options: argparse.Namespace) -> Step:
    """What is done with each batch: ResNet-50 on a GPU, a copy to it, or a look at every page."""
    if not torch.cuda.is_available():

        def look(samples: torch.Tensor) -> None:
            samples.view(-1)[:: max(1, PAGE_BYTES // samples.element_size())].sum()
            if options.step_ms:
                time.sleep(options.step_ms / 1000)

        return look
    if options.pipeline != "jpeg":
        return lambda samples: (samples.to("cuda", non_blocking=True), None)[1]
    spec = importlib.util.spec_from_file_location("imagenet_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model = example.make_model("resnet50", 100).to("cuda", memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step(samples: torch.Tensor) -> None:
        images = samples.to("cuda", non_blocking=True, memory_format=torch.channels_last)
        targets = torch.zeros(len(images), dtype=torch.int64, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def synchronize() -> None:
    """Wait until the GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Training:
    """The loop, a part of it at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.batch = options.batch
        dataset = make_dataset(options.pipeline, options.batch, options.data, options.sleep_seconds)
        self.step = make_step(options)
        loader: DataLoader[Any] = DataLoader(
            dataset, options.batch, num_workers=options.workers, pin_memory=options.pin
        )
        self.batches: Iterator[tuple[torch.Tensor, torch.Tensor]] = iter(loader)
        self.last: torch.Tensor | None = None

    def settle(self, batches: int, seconds: float, makers: int, limit_seconds: float) -> set[int]:
        """Train for at least so long, and until so many other processes make batches."""
        began, count = time.perf_counter(), 0
        found: set[int] = set()
        while count < batches or time.perf_counter() - began < seconds or len(found) < makers:
            found |= self._train()
            count += 1
            if time.perf_counter() - began > limit_seconds:
                break
        return found

    def measure(self, seconds: float, multiple: int) -> dict[str, Any]:
        """Train for a while: a whole multiple of so many batches."""
        synchronize()
        count, waited, began = 0, 0.0, time.perf_counter()
        found: set[int] = set()
        while time.perf_counter() - began < seconds or count % multiple:
            asked = time.perf_counter()
            samples, makers = next(self.batches)
            waited += time.perf_counter() - asked
            self.step(samples)
            found.update(makers.tolist())
            count += 1
        synchronize()
        spent = time.perf_counter() - began
        return {
            "batches": count,
            "images": count * self.batch,
            "seconds": spent,
            "wait_share": waited / spent,
            "makers": len(found - {os.getpid()}),
            "pinned": bool(samples.is_pinned()) if torch.cuda.is_available() else None,
        }

    def measure_step(self, seconds: float) -> dict[str, Any]:
        """The same batch again and again, on the device already: what the step allows."""
        assert self.last is not None
        held = self.last.cuda() if torch.cuda.is_available() else self.last
        for _ in range(5):
            self.step(held)
        synchronize()
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            self.step(held)
            count += 1
            if count % 8 == 0:
                synchronize()
        synchronize()
        return {"images": count * self.batch, "seconds": time.perf_counter() - began}

    def _train(self) -> set[int]:
        self.last, makers = next(self.batches)
        self.step(self.last)
        return set(makers.tolist()) - {os.getpid()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipeline", choices=KINDS, required=True)
    parser.add_argument("--batch", type=int, required=True, help="samples")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of JPEG files")
    parser.add_argument("--sleep-seconds", type=float, default=0.0)
    parser.add_argument("--step-ms", type=float, default=0.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    training = Training(options)
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        if wanted["do"] == "step":
            print(json.dumps(training.measure_step(wanted["seconds"])), flush=True)
            continue
        settled = training.settle(
            wanted["settle_batches"], wanted["settle_seconds"], wanted["makers"], wanted["limit"]
        )
        print(json.dumps({"settled": len(settled)}), flush=True)
        if wanted["do"] == "measure":
            measured = training.measure(wanted["seconds"], wanted["multiple"])
            print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
