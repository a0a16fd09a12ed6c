"""A DDP script as people have it: nothing of Penstock's, a checkpoint, ``torchrun`` or the like.

    torchrun --nproc-per-node=2 train.py FOLDER

trains until FOLDER holds a file ``stop``, and writes one line per step to ``steps-TIME-PID.jsonl``
there. With a file ``fail-K`` rank K raises an error once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

STEP_SECONDS = 0.02


def main() -> None:
    """Train."""
    folder = Path(sys.argv[1])
    distributed.init_process_group("gloo")
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
    with (folder / f"steps-{time.time_ns()}-{os.getpid()}.jsonl").open("a") as log:
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


def _fail_once(folder: Path, rank: int) -> None:
    wanted = folder / f"fail-{rank}"
    if wanted.exists():
        wanted.unlink()
        raise ValueError(f"a fault of rank {rank}")


main()
