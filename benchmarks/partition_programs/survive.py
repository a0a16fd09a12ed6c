"""A training program that may be killed at any moment: it goes on from its checkpoint.

    python -m benchmarks.partition_programs.survive FOLDER --seed 1 --epochs 3

A trained head on a frozen encoder, of which Penstock knows nothing. What was trained after the last
checkpoint dies with the process, and is trained again. Without ``--epochs`` it trains until there
is a file ``enough`` in the folder. While there is a file ``hold``, a step takes two seconds more,
so that somebody joins before the next phase. Losses, the samples of each epoch, and how often what
data workers made of a step was compared or used are in the checkpoint, and in ``done.json`` at the
end.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import Dataset

from benchmarks.dataplane.consuming import save, save_checkpoint
from penstock.data import DataLoader
from penstock.data.consuming.process import consumer_of_process

BATCH: Final = 8
STEPS: Final = 40
"""Of an epoch: too few for the measurement that takes back what is slower, which load decides."""
CHECKPOINT_STEPS: Final = 5
HOLD_SECONDS: Final = 2.0


class Pictures(Dataset):
    """Samples that take a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        generator = torch.Generator().manual_seed(index)
        pixels = torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8, generator=generator)
        return pixels, index


class Program:
    """Model, loader, and what was seen, all of which is in the checkpoint."""

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        torch.manual_seed(seed)
        layers = [nn.Conv2d(3, 32, 3, 2), nn.ReLU(), *(nn.Conv2d(32, 32, 3) for _ in range(4))]
        # The last layer has so many weights that they are sent apart, by their digest.
        self.encode = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1568, 256)).eval()
        self.encode.requires_grad_(requires_grad=False)
        self.head = nn.Sequential(nn.Linear(256, 32), nn.Dropout(0.2), nn.Linear(32, 5))
        self.optimizer = torch.optim.AdamW(self.head.parameters(), 0.01)
        order = torch.Generator().manual_seed(seed)
        self.loader = DataLoader(Pictures(seconds), BATCH, shuffle=True, generator=order)
        self.losses: list[list[str]] = []
        self.seen: list[list[int]] = []
        self.before = {"moved": 0, "compared": 0}
        self._checkpoint = folder / "checkpoint.pt"

    def step(self, batch: Any) -> None:
        """One step, and the note of it."""
        pixels, index = batch
        with torch.no_grad():
            hidden = self.encode((pixels.float() / 255 - 0.5) / 0.2)
        loss = nn.functional.cross_entropy(self.head(hidden), index % 5)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses[-1].append(float(loss.item()).hex())
        self.seen[-1] += index.tolist()

    @property
    def epoch(self) -> int:
        """From 0."""
        number: int = self.loader.state_dict()["epoch"]
        return number

    @property
    def work(self) -> Any:
        """What is done with the loader's batches; None: nothing."""
        return self.loader._penstock.calls

    @property
    def counts(self) -> dict[str, int]:
        """Steps by what became of what data workers made of them, up to now."""
        return {name: count + getattr(self.work, name, 0) for name, count in self.before.items()}

    def save(self) -> None:
        """All of it, in one piece."""
        state = {
            "head": self.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "loader": self.loader.state_dict(),
            "losses": self.losses,
            "seen": self.seen,
            "counts": self.counts,
        }
        save_checkpoint(self._checkpoint, state)

    def load(self) -> None:
        """Go on from the checkpoint, if there is one."""
        if not self._checkpoint.exists():
            return
        saved = torch.load(self._checkpoint, weights_only=False)  # its own file
        self.head.load_state_dict(saved["head"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.loader.load_state_dict(saved["loader"])
        self.losses, self.seen, self.before = saved["losses"], saved["seen"], saved["counts"]
        torch.set_rng_state(saved["random"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample-seconds", type=float, default=0.0)
    parser.add_argument("--epochs", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    program = Program(options.folder, options.seed, options.sample_seconds)
    program.load()
    enough, hold = options.folder / "enough", options.folder / "hold"
    longest, last = 0.0, time.monotonic()
    while not enough.exists() and (options.epochs is None or program.epoch < options.epochs):
        if len(program.losses) == program.epoch:
            program.losses.append([])
            program.seen.append([])
        for step, batch in enumerate(program.loader):
            longest = max(longest, time.monotonic() - last)
            program.step(batch)
            if step % CHECKPOINT_STEPS == 0:
                program.save()
            tell(options.folder, program, longest)
            until = time.monotonic() + HOLD_SECONDS
            while hold.exists() and time.monotonic() < until:
                time.sleep(0.02)
                tell(options.folder, program, longest)
            last = time.monotonic()
        program.save()
    parameters = hashlib.sha256()
    for one in program.head.parameters():
        parameters.update(one.detach().numpy().tobytes())
    done = {"losses": program.losses, "seen": program.seen, "parameters": parameters.hexdigest()}
    save(options.folder / "done.json", {**done, **program.counts, "longest": longest})


def tell(folder: Path, program: Program, longest: float) -> None:
    """What a step has left, for whoever chooses the moment of a kill."""
    consumer, state = consumer_of_process(), getattr(program.work, "state", None)
    proof = getattr(state, "proof", None)
    told = {
        "pid": os.getpid(),
        "phase": str(proof.phase) if proof is not None else "",
        "why": proof.why if proof is not None else "",
        "workers": len(consumer.workers) if consumer is not None else 0,
        "moved": program.counts["moved"],
        "longest": longest,
    }
    save(folder / "progress.json", told)


if __name__ == "__main__":
    main()
