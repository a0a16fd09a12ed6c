"""A plain PyTorch program that knows nothing of sharing; says at its end what it saw.

It trains by sleeping, so that many of them fit on a few cores. A sample has a number that was drawn
when it was made, and whoever makes one writes that number and the CPU time into a file: so what was
made for all programs together, and what that took, is counted from outside.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.dataplane.workloads import KINDS

POLL_SECONDS = 0.02
LIMIT_SECONDS = 300.0
SHORT_SECONDS = 0.05
"""Waits that are not longer are not listed."""


class Numbered(Dataset[Any]):
    """Samples of a workload: pixels, index, and the number of their making."""

    def __init__(self, kind: str, size: int, log: str) -> None:
        self.source, self.size, self.log = KINDS[kind](), size, log

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        began = time.thread_time()
        values, _ = self.source[index]
        number = int(torch.randint(1 << 62, ()))
        line = f"{index} {number} {time.thread_time() - began:.6f}\n"
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)
        return torch.from_numpy(values), index, number


def cpu_seconds() -> float:
    """Of this process, and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def wait_for(file: Path) -> None:
    """Until somebody says that all may begin."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} has not come in {LIMIT_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def main() -> None:
    """Train, and write what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=sorted(KINDS), default="jpeg")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--go", type=Path, required=True)
    parser.add_argument("--log", required=True)
    for name in ("samples", "batch", "epochs", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("--begin-after", type=float, default=0.0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    loader = DataLoader(
        Numbered(options.kind, options.samples, options.log), options.batch, shuffle=True
    )
    progress = options.out.with_suffix(".batches")
    options.out.with_suffix(".ready").touch()
    wait_for(options.go)
    time.sleep(options.begin_after)
    epochs: list[list[int]] = []
    made: list[int] = []
    sizes: list[int] = []
    waits: list[tuple[float, float]] = []
    times: list[float] = []
    begun, cpu, before_first = time.monotonic(), cpu_seconds(), 0.0
    for _ in range(options.epochs):
        seen: list[int] = []
        asked = time.monotonic()
        for _, indices, numbers in loader:
            times.append(time.time())
            waits.append((times[-1], time.monotonic() - asked))
            before_first = before_first or cpu_seconds() - cpu
            seen += indices.tolist()
            sizes.append(len(indices))
            made += numbers.tolist()
            progress.write_text(str(len(sizes)))
            if options.step_seconds:
                time.sleep(options.step_seconds)
            asked = time.monotonic()
        epochs.append(seen)
    result = {
        "epochs": epochs,
        "made": made,
        "sizes": sizes,
        "times": times,
        "first_at": waits[0][0],
        "first_seconds": waits[0][1],
        "waits": [wait for wait in waits[1:] if wait[1] > SHORT_SECONDS],
        "seconds": time.monotonic() - begun,
        "cpu_seconds": cpu_seconds() - cpu,
        "cpu_seconds_before_first": before_first,
    }
    fresh = options.out.with_suffix(".new")
    fresh.write_text(json.dumps(result))
    fresh.replace(options.out)


if __name__ == "__main__":
    main()
