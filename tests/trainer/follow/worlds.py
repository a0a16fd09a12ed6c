"""Worlds whose ranks are run one after the other in one process, each with a follower of its own.

Nothing that is followed talks to another process, so that this differs from real worlds only in
that it takes no time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from penstock.trainer.follow import FOLLOW
from penstock.trainer.follow import follower as follower_module
from penstock.trainer.follow.follower import (
    Follower,
    _follow_loaders,
    _follow_optimizers,
    install,
)


class Numbers(Dataset[int]):
    """Samples that say which they are."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Rank:
    """One process of a world."""

    def __init__(self, checkpoint: bytes | None) -> None:
        self.follower = Follower()
        self.loader_class = type("Loader", (DataLoader,), {})
        own_optimizer = type("Own", (torch.optim.SGD,), {})
        _follow_loaders(self.loader_class, self.follower)
        _follow_optimizers(own_optimizer, self.follower)
        self.optimizer = own_optimizer([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        if checkpoint is not None:
            self.optimizer.load_state_dict(torch.load(io.BytesIO(checkpoint), weights_only=True))

    def loader(self, dataset: Any, **options: Any) -> Any:
        """A DataLoader of this process."""
        return self.loader_class(dataset, **options)

    def trains(self) -> None:
        """Gradients are computed."""
        self.follower.decide()

    def save(self) -> bytes:
        """A checkpoint."""
        file = io.BytesIO()
        torch.save(self.optimizer.state_dict(), file)
        return file.getvalue()


Loop = Callable[[Rank, int, int], Iterator[list[int]]]
"""A training loop: which samples each of its steps has; from the process, its rank, the world."""


def live(
    loop: Loop, world: int, steps: int | None, checkpoint: bytes | None
) -> tuple[list[list[int]], bytes | None]:
    """The steps of a world until it is stopped, or the end; and rank 0's checkpoint of the last."""
    taken: list[list[int]] = []
    saved = checkpoint
    for number in range(world):
        rank = Rank(checkpoint)
        for at, batch in enumerate(loop(rank, number, world)):
            if at == len(taken):
                taken.append([])
            taken[at] += batch
            if steps is not None and at + 1 == steps:
                saved = rank.save() if number == 0 else saved
                break
    return taken, saved


class Lines(Dataset[dict[str, torch.Tensor]]):
    """Points of a plane, whose sum is to be found."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        values = torch.tensor([float(index % 7), 1.0])
        return {"sample": torch.tensor(index), "values": values, "labels": values.sum()}


def follow_here(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Follow this process's loaders until the end of a test; what is returned begins a new life."""
    patched = [
        (DataLoader, "__iter__"),
        (DataLoader, "_index_sampler"),
        (torch.optim.Optimizer, "state_dict"),
        (torch.optim.Optimizer, "load_state_dict"),
        (torch.autograd, "backward"),
    ]
    for holder, name in patched:
        monkeypatch.setattr(holder, name, vars(holder)[name])  # is put back
    monkeypatch.setenv(FOLLOW, "1")
    monkeypatch.setattr(follower_module, "_installed", [])
    install(torch)
    (follower,) = follower_module._installed
    return lambda: Follower.__init__(follower)
