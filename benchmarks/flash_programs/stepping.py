"""A training that keeps its state every so many steps, and one that takes it up; prints JSON.

    python -m benchmarks.flash_programs.stepping train before FOLDER 400000000 40 10 0

A step is a product of matrices of about the asked time and an update of every tensor, in place.
Every so many steps the state is kept, and at the last; a way that has no place for it then keeps it
at the first step at which it has. The bound printed with it is one copy of the state into memory
that was used before.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.flash_programs.savers import SAVERS, State, digest, load, make_state
from penstock.trainer.snapshot.schedule import SaveSchedule


def work_of(seconds: float) -> Any:
    """A function that computes for about so long."""
    left, right = torch.rand(512, 512), torch.rand(512, 512)
    begin = time.perf_counter()
    for _ in range(20):
        left @ right
    rounds = max(1, round(seconds / ((time.perf_counter() - begin) / 20)))

    def work() -> None:
        for _ in range(rounds):
            left @ right

    return work


def update(state: State, step: int) -> None:
    """What an optimizer does: every number is read and written."""
    for tensors in state.values():
        for tensor in tensors.values():
            tensor.add_(step)


def peak_bytes() -> int:
    """The most memory that this process has had in RAM, shared memory included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def train(system: str, folder: Path, size: int, steps: int, every: int, seconds: float) -> None:
    """Print the times of all steps; the last line is out before the process kills itself."""
    base, state, saver = peak_bytes(), make_state(size), SAVERS[system](folder)
    work, times, saves, schedule = work_of(seconds), [], [], SaveSchedule(every, None)
    for step in range(1, steps + 1):
        begin = time.perf_counter()
        work()
        update(state, step)
        if schedule.after(step, complete=step == steps, has_place=saver.has_place):
            before = time.perf_counter()
            saver.save(step, state)
            saves.append(time.perf_counter() - before)
        times.append(time.perf_counter() - begin)
    saver.finish()
    peak = peak_bytes() - base
    print(
        json.dumps(
            {
                "times": times,
                "saves": saves,
                "peak_bytes": peak,
                "digest": digest(state),
                "memcpy_seconds": memcpy_seconds(state),
            }
        ),
        flush=True,
    )
    if system == "penstock":  # a process that is killed: what it had is its agent's
        os.kill(os.getpid(), signal.SIGKILL)


def memcpy_seconds(state: State) -> float:
    """One copy of the state into memory that was used before: the least of five."""
    room = {group: {name: t.clone() for name, t in ts.items()} for group, ts in state.items()}
    found = []
    for _ in range(5):
        begin = time.perf_counter()
        load(room, state)
        found.append(time.perf_counter() - begin)
    return min(found)


def begin_again(system: str, folder: Path, size: int) -> None:
    """Print how long the newest state took to be taken up, and what memory."""
    base, state = peak_bytes(), make_state(size)
    saver = SAVERS[system](folder)
    begin = time.perf_counter()
    saver.restore(state)
    seconds = time.perf_counter() - begin
    peak = peak_bytes() - base
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "digest": digest(state)}), flush=True)


def main() -> None:
    """As the module says."""
    task, system, folder, size = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    if task == "train":
        steps, every, seconds = int(sys.argv[5]), int(sys.argv[6]), float(sys.argv[7])
        train(system, folder, size, steps, every, seconds)
    else:
        begin_again(system, folder, size)


if __name__ == "__main__":
    main()
