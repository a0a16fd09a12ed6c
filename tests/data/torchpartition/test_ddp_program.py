"""A program with `DistributedDataParallel`, unmodified: both of its processes switch together."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

SCRIPT: Final = """
import hashlib, json, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Images(Dataset):
    def __len__(self):
        return 192
    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8, generator=generator), index % 5

def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), *(nn.Conv2d(32, 32, 3) for _ in range(4))]
    encode = nn.Sequential(*layers).eval().requires_grad_(False)
    layers = [nn.Linear(32, 32), nn.Dropout(0.2), nn.Linear(32, 5)]
    head = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(head.parameters(), 0.01)
    sampler = DistributedSampler(Images(), seed=3)
    loader = DataLoader(Images(), 4, sampler=sampler, num_workers=1)
    digest, modes = hashlib.sha256(), []
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for step, (images, labels) in enumerate(loader):
            if "write" in sys.argv and (epoch, step, dist.get_rank()) == (4, 2, 1):
                with torch.no_grad():
                    encode[0].weight.mul_(1.0)
            with torch.no_grad():
                hidden = encode((images.float() / 255 - 0.5) / 0.2).mean((2, 3))
            loss = nn.functional.cross_entropy(head(hidden), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            digest.update(loss.detach().numpy().tobytes())
            steps = getattr(loader.__dict__.get("_penstock_epochs"), "calls", None)
            if steps is not None:
                modes.append(steps.state.proof.mode(steps.state.step))
    print(json.dumps({"losses": digest.hexdigest(), "modes": modes,
                      "moved": getattr(steps, "moved", 0)}))
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""

pytestmark = pytest.mark.slow


def train(folder: Path, how: str, *others: str) -> tuple[list[Any], str]:
    """What both processes printed, and what was said."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", "--partition", how, "--", sys.executable, str(script), *others]
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    environ["PENSTOCK_PARTITION_SHARE"] = "1"
    processes = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**environ, "RANK": str(rank)},
        )
        for rank in range(2)
    ]
    try:
        ends = [one.communicate(timeout=200) for one in processes]
    finally:
        for one in processes:
            one.kill()
    said = "\n".join(error for _, error in ends)
    assert all(one.returncode == 0 for one in processes), said
    return [json.loads(text) for text, _ in ends], said


def test_both_processes_use_what_came_at_the_same_steps_and_losses_are_the_same(
    tmp_path: Path,
) -> None:
    never, _ = train(tmp_path, "never")
    auto, said = train(tmp_path, "auto")
    assert [one["losses"] for one in auto] == [one["losses"] for one in never]
    assert auto[0]["modes"] == auto[1]["modes"], said
    assert all(one["moved"] >= 20 for one in auto), said
    assert said.count("partition: the loader of Images: On: ") == 2


def test_one_that_writes_to_its_encoder_has_both_go_on_as_written(tmp_path: Path) -> None:
    never, _ = train(tmp_path, "never", "write")
    auto, said = train(tmp_path, "auto", "write")
    assert [one["losses"] for one in auto] == [one["losses"] for one in never]
    assert said.count("FellBack: ") == 2, said
    assert "of 1: Sequential: 0.weight was written to" in said
