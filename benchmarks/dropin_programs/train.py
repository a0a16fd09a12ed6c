"""A DDP script as people have it: nothing of Penstock's, a checkpoint, ``torchrun`` or the like.

    torchrun --nproc-per-node=2 train.py FOLDER

trains until FOLDER holds a file ``stop``, and writes one line per step to ``steps-TIME-PID.jsonl``
there, and one of its start to ``starts-TIME-PID.jsonl``. With a file ``fail-K`` rank K raises an
error once.
"""

from __future__ import annotations

import time

BEGUN = time.time()

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

IMPORTED = time.time()
STEP_SECONDS = 0.02


def main() -> None:
    """Train."""
    folder = Path(sys.argv[1])
    distributed.init_process_group("gloo")
    name = f"{time.time_ns()}-{os.getpid()}.jsonl"
    (folder / f"starts-{name}").write_text(json.dumps(_start()) + "\n")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    saved, step = folder / "checkpoint.pt", 0
    if saved.exists():
        state: dict[str, Any] = torch.load(saved)
        model.load_state_dict(state["model"])
        step = state["step"]
    replicas = DistributedDataParallel(model)
    with (folder / f"steps-{name}").open("a") as log:
        while True:
            stop = torch.tensor([float((folder / "stop").exists())])
            distributed.all_reduce(stop)
            if stop.item():
                break
            _fail_once(folder, rank)
            optimizer.zero_grad()
            replicas(torch.randn(4, 8)).pow(2).mean().backward()
            optimizer.step()
            step += 1
            line = {"time": time.time(), "step": step, "rank": rank, "world": world}
            log.write(json.dumps(line) + "\n")
            log.flush()
            if rank == 0 and step % 10 == 0:
                torch.save({"model": model.state_dict(), "step": step}, folder / "new.pt")
                (folder / "new.pt").replace(saved)
            time.sleep(STEP_SECONDS)
    distributed.destroy_process_group()


def _start() -> dict[str, float]:
    """When this process was spawned, ran its first line, had PyTorch, and was in its group."""
    now = time.time()
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    return {"spawned": now - age, "begun": BEGUN, "imported": IMPORTED, "grouped": now}


def _fail_once(folder: Path, rank: int) -> None:
    wanted = folder / f"fail-{rank}"
    if wanted.exists():
        wanted.unlink()
        raise ValueError(f"a fault of rank {rank}")


main()
