"""A program with a table keyed by ids, an optimizer with state and a schedule, alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from penstock.crds import environment
from penstock.trainer import ps

IDS = torch.tensor([[7, -(1 << 62)], [7, 5], [(1 << 63) - 1, 7]])


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (environment.TRAINER_ADDRESS, environment.CHECKPOINT_DIR, environment.STEP_LOG):
        monkeypatch.delenv(name, raising=False)


class Net(nn.Module):
    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.users = ps.DynamicEmbedding(50, 4, std=0.1, **fields)
        self.items = ps.Embedding(10, 4)
        torch.manual_seed(0)
        self.out = nn.Linear(4, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.users(ids) + self.items(ids % 10))
        return found


def train(
    model: Net, optimizer: ps.Optimizer, epochs: int = 1, stop_at: int | None = None, **fields: Any
) -> dict[str, torch.Tensor]:
    with ps.session(model, optimizer, 6, 2, epochs, **fields) as session:
        for number, batch in enumerate(session):
            if number == stop_at:
                raise InterruptedError
            optimizer.zero_grad()
            model(IDS[batch % 3]).sum().backward()
            optimizer.step()
        return session.state_dict()


def test_ids_get_rows_as_they_are_seen_and_come_with_the_weights() -> None:
    model = Net()
    state = train(model, ps.Optimizer(model, "adam"))
    assert state["users.ids"].tolist() == sorted(set(IDS.flatten().tolist()))
    assert state["users.weight"].shape == (4, 4)
    rare = Net(admit_after=100)
    assert train(rare, ps.Optimizer(rare, "adam"))["users.weight"].shape == (0, 4)


def test_it_is_taken_up_from_a_checkpoint_with_ids_and_state(tmp_path: Path) -> None:
    def optimizer(model: Net) -> ps.Optimizer:
        schedule = ps.Schedule(kind="exponential", gamma=0.9, warmup=2)
        return ps.Optimizer(model, "sgd", lr=0.5, momentum=0.9, schedule=schedule)

    model = Net(admit_after=2)
    undisturbed = train(model, optimizer(model), epochs=4)
    model = Net(admit_after=2)
    saved: dict[str, Any] = {"checkpoint_dir": tmp_path, "checkpoint_every": 5}
    with pytest.raises(InterruptedError):
        train(model, optimizer(model), epochs=4, stop_at=7, **saved)
    model = Net(admit_after=2)
    taken_up = train(model, optimizer(model), epochs=4, **saved)
    assert undisturbed.keys() == taken_up.keys()
    for name, values in undisturbed.items():
        assert torch.equal(taken_up[name], values), name


def test_a_gradient_that_is_not_finite_names_the_table() -> None:
    model = Net()
    optimizer = ps.Optimizer(model, "adamw")
    with ps.session(model, optimizer, 2, 2) as session:
        for _ in session:
            (model.users(IDS) * torch.nan).sum().backward()
            optimizer.step()
        assert session._runner is not None
        assert session._runner.dropped == {"users": 1}


@pytest.mark.parametrize(
    ("rule", "fields", "text"),
    [
        ("adam", {"momentum": 0.9}, "momentum: 0.9; it belongs to sgd, and this is adam"),
        ("sgd", {"betas": (0.9, 0.99)}, "betas: .* belongs to adam and adamw, and this is sgd"),
        ("sgd", {"eps": 1e-8}, "eps: .* belongs to adagrad and adam and adamw"),
        ("sgd", {"nesterov": True}, "nesterov: True without momentum"),
        ("sgd", {"momentum": 1.0}, "momentum: 1.0; a finite number of at least 0 and below 1"),
        ("adam", {"betas": (0.9, 1.0)}, "betas: 1.0; .* below 1"),
        ("adam", {"betas": 0.9}, "betas: 0.9; two numbers"),
        ("adamw", {"weight_decay": -1.0}, "weight_decay: -1.0; a finite number of at least 0"),
        ("adam", {"schedule": abs}, "schedule: a builtin_function_or_method; servers know"),
        ("rmsprop", {}, "rule: 'rmsprop'; one of sgd, adagrad, adam, adamw"),
    ],
)
def test_what_a_rule_does_not_take_is_refused_by_name(
    rule: str, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        ps.Optimizer(Net(), rule, **fields)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"capacity": 0}, "capacity: 0; at least 1"),
        ({"admit_after": 0}, "admit_after: 0; at least 1"),
        ({"evict_after": 1.5}, "evict_after: 1.5; an integer"),
    ],
)
def test_what_a_table_does_not_take_is_refused_by_name(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ps.DynamicEmbedding(**{"capacity": 10, "dim": 2, **fields})


def test_defaults_are_those_of_torch() -> None:
    model = Net()
    for rule, kind in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        ours, theirs = ps.Optimizer(model, rule).spec, kind(model.parameters()).defaults
        assert ours.learning_rate == theirs["lr"]
        assert (ours.beta1, ours.beta2) == theirs["betas"]
        assert ours.epsilon == theirs["eps"]
        assert ours.weight_decay == theirs["weight_decay"]
