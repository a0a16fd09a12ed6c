"""A schedule gives what torch's schedulers give, from the number of a batch alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch.optim import lr_scheduler

from penstock.parameter_server.schedule import Schedule

RATE = 0.4
SAME: list[tuple[Schedule, Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]]] = [
    (
        Schedule(kind="constant"),
        lambda optimizer: lr_scheduler.ConstantLR(optimizer, factor=1.0),
    ),
    (
        Schedule(kind="linear", batches=20, final=0.1),
        lambda optimizer: lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=20),
    ),
    (
        Schedule(kind="exponential", gamma=0.9),
        lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9),
    ),
    (
        Schedule(kind="step", gamma=0.5, every=7),
        lambda optimizer: lr_scheduler.StepLR(optimizer, 7, 0.5),
    ),
    (
        Schedule(kind="constant", warmup=10),
        lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=9),
    ),
]


@pytest.mark.parametrize(("schedule", "make"), SAME, ids=[s.kind for s, _ in SAME])
def test_factors_are_those_of_torch(
    schedule: Schedule,
    make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler],
) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = make(optimizer)
    for batch in range(50):
        rate = optimizer.param_groups[0]["lr"]
        assert RATE * schedule.factor(batch) == pytest.approx(rate, rel=1e-9)
        optimizer.step()
        scheduler.step()


def test_a_cosine_is_torchs_and_stays_where_it_ends() -> None:
    """CosineAnnealingLR comes back up after its end."""
    schedule = Schedule(kind="cosine", batches=20, final=0.1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, 20, eta_min=0.1 * RATE)
    for batch in range(21):
        rate = optimizer.param_groups[0]["lr"]
        assert RATE * schedule.factor(batch) == pytest.approx(rate, rel=1e-9)
        optimizer.step()
        scheduler.step()
    assert schedule.factor(1000) == pytest.approx(0.1)


def test_a_warm_up_comes_before_the_rest() -> None:
    schedule = Schedule(kind="exponential", gamma=0.5, warmup=4)
    assert [schedule.factor(n) for n in range(7)] == [0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.25]
    assert schedule.factor(1 << 60) == 0.0
    assert math.isfinite(schedule.factor(1 << 62))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kind": "cosine"}, "batches: None; cosine needs batches"),
        ({"kind": "step", "gamma": 0.5}, "every: None; step needs every"),
        ({"kind": "constant", "gamma": 0.5}, "gamma: 0.5; constant has no gamma"),
        ({"kind": "exponential", "gamma": 0.5, "final": 0.1}, "exponential has no final"),
        ({"kind": "exponential", "gamma": 1.5}, "gamma"),
        ({"kind": "linear", "batches": 0}, "batches"),
    ],
)
def test_what_a_kind_does_not_take_is_refused_by_name(fields: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Schedule.model_validate(fields)
