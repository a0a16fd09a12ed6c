"""The exchange that every system of `benchmarks.ps` does, and how one measures it.

One exchange is what a batch costs: read the dense parameters, pull the rows of the batch's ids,
push their gradients and those of the dense parameters; every server applies plain SGD. A system is
a program that starts servers and workers as processes of its own and answers one JSON object per
line (``rows`` and ``seconds``) with what its workers did in that time and what all of it cost.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TABLE_ROWS = 500_000
DIM = 16
DENSE = 20_000
LEARNING_RATE = 1e-3
BATCHES = 16  # different ones, in turn
WARM_UP_SECONDS = 0.15
_TICK = os.sysconf("SC_CLK_TCK")

Exchange = Callable[[int, NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]], None]
"""Slot, ids (each once, in order), their gradients, gradients of the dense parameters."""


def exchange_bytes(rows: int) -> int:
    """What is moved in one exchange: ids twice, values, gradients, dense parameters twice."""
    return rows * (2 * 8 + 2 * 4 * DIM) + 2 * 4 * DENSE


def work(commands: Connection, exchange: Exchange, worker: int, workers: int) -> None:
    """A worker's life: for each (rows, seconds), exchange for so long; answer how often."""
    slot = worker
    commands.send("up")
    while (wanted := commands.recv()) is not None:
        rows, seconds = wanted
        chance = np.random.default_rng(worker)
        batches = []
        for _ in range(BATCHES):
            ids = np.unique(chance.integers(0, TABLE_ROWS, int(rows * 1.1)))
            ids = np.sort(chance.permutation(ids)[:rows])
            batches.append((ids, chance.standard_normal((len(ids), DIM), np.float32)))
        dense = chance.standard_normal(DENSE, np.float32)
        for phase in (WARM_UP_SECONDS, seconds):
            if phase == seconds:
                commands.send("warm")
                commands.recv()
            count, until = 0, time.perf_counter() + phase
            while time.perf_counter() < until:
                exchange(slot, *batches[count % BATCHES], dense)
                slot += workers
                count += 1
        commands.send(count)


def measure(
    workers: list[Connection], servers: list[int], worker_pids: list[int]
) -> Iterable[dict[str, Any]]:
    """Carry out what is asked on standard input, one figure a line."""
    for line in sys.stdin:
        wanted = json.loads(line)
        for one in workers:
            one.send((wanted["rows"], wanted["seconds"]))
        for one in workers:
            one.recv()
        before, began = [cpu_seconds(servers), cpu_seconds(worker_pids)], time.perf_counter()
        for one in workers:
            one.send("go")
        count = sum(one.recv() for one in workers)
        after = [cpu_seconds(servers), cpu_seconds(worker_pids)]
        yield {
            "exchanges": count,
            "seconds": time.perf_counter() - began,
            "server_cpu": after[0] - before[0],
            "worker_cpu": after[1] - before[1],
        }
    for one in workers:
        one.send(None)


def answer(workers: list[Connection], servers: list[int], worker_pids: list[int]) -> None:
    """Be a system, once everybody is up, until the input ends."""
    for one in workers:
        one.recv()
    print(json.dumps({"up": True}), flush=True)
    for figures in measure(workers, servers, worker_pids):
        print(json.dumps(figures), flush=True)


def spawn(target: Callable[..., None], *arguments: Any) -> tuple[int, Connection]:
    """A process with a pipe, which is its first argument; its number and our end."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    assert process.pid is not None
    return process.pid, ours


def cpu_seconds(pids: list[int]) -> float:
    """CPU time that processes have used so far."""
    ticks = 0
    for pid in pids:
        rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(rest[11]) + int(rest[12])
    return ticks / _TICK
