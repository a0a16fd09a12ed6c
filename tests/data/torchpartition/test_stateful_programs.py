"""Parts of programs that have state, or belong to another device: they stay, and say why."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.data.torchpartition.training import (
    Training,
    encoder,
    everything_is_worth_it,
    frozen,
    moved_names,
    normal,
    plain_loss,
    program,
)

F = nn.functional


@pytest.fixture(autouse=True)
def _everything_is_worth_it() -> Iterator[None]:
    """What is judged here is whether calls may move."""
    with everything_is_worth_it():
        yield


def ema(batch: Any, parts: Any, head: nn.Module) -> torch.Tensor:
    encode, every = parts
    if next(every[0]) % every[1] == 0:
        for parameter in encode.parameters():
            parameter.data.mul_(0.99)
    return plain_loss(batch, encode, head)


def noisy(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def loss(batch: Any, encode: Any, head: nn.Module) -> torch.Tensor:
        with torch.no_grad():
            hidden = encode(change(normal(batch[0])))
        return F.cross_entropy(head(hidden), batch[1])

    return loss


def normalising() -> nn.Module:
    return frozen(
        nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 16))
    )


class Counting(nn.Sequential):
    """Counts its calls, frozen as it is."""

    calls = 0

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        for layer in self:
            pixels = layer(pixels)
        return pixels * self.calls


class Printing(nn.Sequential):
    """Says that it was called."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        print("called")
        for layer in self:
            pixels = layer(pixels)
        return pixels


def looked_at(batch: Any, encode: Any, head: nn.Module) -> torch.Tensor:
    """Reads a number before the encoder, and goes by it."""
    x = normal(batch[0])
    return F.cross_entropy(head(encode(x * x.mean().item())), batch[1])


TURNS = itertools.cycle([True, False])
STAYS: dict[str, tuple[Any, Any, str]] = {
    "a teacher that follows in each step": (
        ema, lambda: (encoder(), (iter(range(1000)), 1)), "Mutated"
    ),
    "a teacher that follows in each second step": (
        ema, lambda: (encoder(), (iter(range(1000)), 2)), "Mutated"
    ),
    "statistics": (plain_loss, lambda: normalising().train(), "Mutated"),
    "Python's numbers": (noisy(lambda x: x * random.random()), encoder, "Varying"),
    "draws": (noisy(lambda x: x + torch.randn_like(x)), encoder, "Random"),
    "dropout": (noisy(F.dropout), encoder, "Random"),
    "branches": (
        noisy(lambda x: x * 2 if next(TURNS) else x + x),
        encoder,
        "not alike",
    ),
    "memory": (noisy(lambda x: x + x.data_ptr() * 0), encoder, "Pinned|Mutated"),
    "trained": (plain_loss, lambda: encoder().requires_grad_(), "Trained"),
    "a module that counts": (
        plain_loss, lambda: frozen(Counting(*encoder().children())), "Mutated: calling it changes"
    ),
    "a module that prints": (
        plain_loss, lambda: frozen(Printing(*encoder().children())), "Mutated: it prints"
    ),
    "a number that is read before the cut": (
        looked_at, encoder, "Pinned: the program looks at its numbers"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_what_is_stateful_stays_and_says_why(name: str) -> None:
    loss, make, reason = STAYS[name]
    training = Training(program(loss, make))
    training.run()
    loader = training.loader
    encoders = {"Sequential", "Counting", "Printing", "nn.functional.conv2d", "conv2d"}
    moved = moved_names(loader) if loader.plan is not None else []
    assert not encoders & set(moved)
    assert loader.plan is None or any(
        re.search(reason, item.why) for item in loader.plan.items
    ) or re.search(reason, loader.state.proof.why)  # fmt: skip


def test_what_goes_to_another_kind_of_device_stays_and_says_which() -> None:
    def loss(batch: Any, encode: Any, head: nn.Module) -> torch.Tensor:
        x = normal(batch[0])
        far = x.to("meta") * 2  # as a model on an accelerator has it
        return F.cross_entropy(head(encode(x)) + far.shape[1], batch[1])

    training = Training(program(loss))
    training.run()
    assert training.loader.plan is not None
    whys = {item.name.split(": ")[1]: item.why for item in training.loader.plan.items}
    assert whys["Tensor.to"] == "Pinned: it gives a tensor on meta: data workers compute on CPUs"
    assert "Tensor.to" not in moved_names(training.loader)
