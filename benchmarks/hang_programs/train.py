"""An unmodified DDP loop on gloo in which one rank is made to stand still at some step.

    train.py KIND RANK STEP SEED SECONDS EVERY

KIND ``none``: nothing is planted; steps are uneven for so many seconds, with evaluations of 15 s
between, one after so many steps, and at least one.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KIND, AT_RANK, AT_STEP, SEED, SECONDS, EVERY = sys.argv[1], *map(int, sys.argv[2:7])
PLANTED = threading.Event()


def tell(text: str) -> None:
    print(f"HANG {text} {time.time():.3f}", flush=True)


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        if PLANTED.is_set() and KIND == "data":
            threading.Event().wait()
        return torch.full((64,), float(index % 7))


def hold_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def spin() -> None:
    number = 1
    while True:
        number = number * 3 % 1000003


def save_state(model: nn.Module) -> None:
    """Into a file that nobody reads on."""
    path = Path(tempfile.mkdtemp()) / "state.pt"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    large = [torch.zeros(1 << 18) for _ in range(4)]
    with path.open("wb", buffering=0) as file:
        torch.save({"model": model.state_dict(), "large": large}, file)
    os.close(reader)


def wait_alone() -> None:
    dist.barrier()


def plant(model: nn.Module) -> None:
    tell(f"planted {KIND} {AT_RANK}")
    if KIND == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif KIND == "lock":
        hold_lock()
    elif KIND == "loop":
        spin()
    elif KIND == "checkpoint":
        save_state(model)
    elif KIND == "collective":
        wait_alone()


def evaluate(model: nn.Module, seconds: float) -> None:
    until = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < until:
            for layer in model.modules():
                if isinstance(layer, nn.Linear):
                    layer(torch.randn(256, layer.in_features))


def pauses() -> Iterator[float]:
    """Of steps, in seconds, the same on each rank: most are short, and some are long."""
    draws = random.Random(SEED)
    while True:
        yield min(draws.paretovariate(1.2) * 0.05, 8.0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(SEED)
    core = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    model = DistributedDataParallel(core)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    until = time.monotonic() + SECONDS
    slow = pauses()
    for step, batch in enumerate(DataLoader(Samples(), batch_size=8)):
        if KIND == "none":
            time.sleep(next(slow))
            if (step + 1) % EVERY == 0:
                evaluate(core, 15.0)
            ends = torch.tensor(float(step + 1 >= EVERY and time.monotonic() >= until))
            dist.all_reduce(ends, dist.ReduceOp.MAX)
            if ends:
                break
        else:
            time.sleep(0.2)
            if step == AT_STEP and dist.get_rank() == AT_RANK:
                PLANTED.set()
                plant(core)
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tell("ended")


if __name__ == "__main__":
    main()
