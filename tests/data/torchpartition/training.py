"""A training program that is looked at, with loader and data workers played by hand."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest
import torch
import torch._dynamo
from torch import nn

from penstock.data.torchpartition import plan
from penstock.data.torchpartition.loader_steps import LoaderSteps
from penstock.data.torchpartition.observation.modules import unwatch

Step = Callable[[Any], torch.Tensor]


@contextlib.contextmanager
def let_go() -> Iterator[None]:
    """PyTorch is afterwards as it was before."""
    plain = nn.Module.__call__
    try:
        yield
    finally:
        torch._dynamo.reset()
        gc.collect()
        while nn.Module.__call__ is not plain:
            unwatch()


@contextlib.contextmanager
def everything_is_worth_it() -> Iterator[None]:
    """Calls of a few microseconds move as well."""
    with pytest.MonkeyPatch.context() as patch, let_go():
        patch.setattr(plan, "MATCH_SECONDS", 0.0)
        patch.setattr(plan, "MATCH_MODULE_SECONDS", 0.0)
        patch.setattr(plan, "WORKER_SECOND", 1e-9)
        patch.setattr(plan, "_worth", lambda *figures: "")
        yield


def pairs(rows: int = 4) -> list[torch.Tensor]:
    return [torch.randint(0, 256, (rows, 3, 8, 8), dtype=torch.uint8), torch.arange(rows) % 5]


def frozen(module: nn.Module) -> nn.Module:
    return module.eval().requires_grad_(requires_grad=False)


def encoder() -> nn.Module:
    return frozen(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 16)))


class Training:
    """One program, that has made its losses before it is made again under observation."""

    def __init__(self, program: Callable[[], Step], batch: Callable[[], Any] = pairs) -> None:
        self.program, self.batch = program, batch
        self.loader = LoaderSteps("the loader")

    def run(self, epochs: int = 4, steps: int = 12) -> list[Any]:
        """Its losses, under observation; asserts that they are what they are without."""
        alone = self.alone(epochs, steps)
        losses = self._watched(self._batches(epochs, steps))
        for number, (one, other) in enumerate(zip(losses, alone, strict=True)):
            assert torch.equal(one, other), f"step {number} of {len(alone)}: {self.loader.state}"
        return losses

    def alone(self, epochs: int = 4, steps: int = 12) -> list[Any]:
        """Its losses as it is."""
        return self._losses(self._batches(epochs, steps))

    def _batches(self, epochs: int, steps: int) -> list[list[Any]]:
        torch.manual_seed(1)
        random.seed(1)
        return [[self.batch() for _ in range(steps)] for _ in range(epochs)]

    def _losses(self, batches: Any) -> list[Any]:
        torch.manual_seed(2)
        random.seed(2)
        step = self.program()
        return [step(batch).detach().clone() for epoch in batches for batch in epoch]

    def _watched(self, batches: Any) -> list[Any]:
        torch.manual_seed(2)
        random.seed(2)
        step = self.program()
        losses = []
        for epoch in batches:
            losses += [step(batch).detach().clone() for batch in self.delivered(epoch)]
        return losses

    def delivered(self, epoch: list[Any]) -> Iterator[Any]:
        """As a loader gives them: what is asked for ends the step before."""
        stage = self.loader.begin_epoch()
        if stage is not None:
            sent, stage = stage, pickle.loads(cloudpickle.dumps(stage))
            for weights, own in zip(stage.weights, sent.weights, strict=True):
                weights.attach(bytearray(b"".join(own.read(0, own.size))))
        for batch in epoch:
            self.loader.end_step()
            yield self.loader.deliver(stage(copy.deepcopy(batch)) if stage else batch)
        self.loader.end_step()


def trained(program: Callable[[nn.Module], Callable[[Any], torch.Tensor]], width: int = 16) -> Step:
    """A step that trains a head on what a program makes of a batch."""
    head = nn.Sequential(nn.Linear(width, 8), nn.Dropout(0.2), nn.Linear(8, 5))
    look = program(head)
    optimizer = torch.optim.AdamW(head.parameters(), 0.01)

    def step(batch: Any) -> torch.Tensor:
        loss = look(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def program(
    loss: Callable[[Any, Any, nn.Module], torch.Tensor],
    make: Callable[[], Any] = encoder,
    width: int = 16,
) -> Callable[[], Step]:
    """A program of a loss, given a batch, what it has frozen, and a head that is trained."""

    def made() -> Step:
        own = make()
        return trained(lambda head: lambda batch: loss(batch, own, head), width)

    return made


MEAN = torch.rand(1, 3, 1, 1)


def normal(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels.float() / 255 - MEAN) / 0.3


def plain_loss(batch: Any, encode: Any, head: nn.Module) -> torch.Tensor:
    pixels, labels = batch
    with torch.no_grad():
        hidden = encode(normal(pixels))
    return nn.functional.cross_entropy(head(hidden), labels)


def moved_names(loader: LoaderSteps) -> list[str]:
    assert loader.plan is not None, loader.state.proof.why
    return [item.name.split(": ")[1] for item in loader.plan.items if item.moves]
