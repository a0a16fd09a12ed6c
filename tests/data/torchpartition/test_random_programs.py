"""Random steps, that may change while they run: what moves, and every loss is the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import torch
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from torch import nn

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.torchpartition import plan
from tests.data.torchpartition.training import Training, frozen, let_go

F = nn.functional
CHANGES_AT: Final = 33
"""The step from which a program is another: some calls are matched by then."""


@pytest.fixture(autouse=True)
def _everything_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plan, "MATCH_SECONDS", 0.0)
    monkeypatch.setattr(plan, "MATCH_MODULE_SECONDS", 0.0)
    monkeypatch.setattr(plan, "WORKER_SECOND", 1e-9)
    monkeypatch.setattr(plan, "_worth", lambda *figures: "")
    with let_go():
        yield


class Parts(nn.Module):
    """What steps are made of beside a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = frozen(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))
        self.statistics = nn.BatchNorm1d(6, affine=False)
        self.trained = nn.Linear(6, 6)
        self.constant = torch.rand(6)


def written(x: torch.Tensor, write: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    if not x.requires_grad:
        write(x)
    return x


Operation = Callable[[torch.Tensor, torch.Tensor, Parts], torch.Tensor]
OPERATIONS: Final[dict[str, Operation]] = {
    "scale": lambda x, y, parts: x * 1.5,
    "add": lambda x, y, parts: x + y,
    "constant": lambda x, y, parts: x - parts.constant,
    "view": lambda x, y, parts: x.view(-1)[: x.numel()].view(x.shape),
    "transposed": lambda x, y, parts: x.t().contiguous().t(),
    "chunks": lambda x, y, parts: torch.cat(x.chunk(2, 1)[::-1], 1),
    "column": lambda x, y, parts: x + y[:, 1][:, None],
    "same": lambda x, y, parts: x.contiguous(),
    "float": lambda x, y, parts: x.float(),
    "sorted": lambda x, y, parts: x[torch.argsort(y[:, 0])],
    "unique": lambda x, y, parts: x + torch.unique((y * 3).long())[0],
    "rows": lambda x, y, parts: x / len(y),
    "frozen": lambda x, y, parts: parts.frozen(x),
    "frozen twice": lambda x, y, parts: parts.frozen(x) + parts.frozen(y),
    "statistics": lambda x, y, parts: parts.statistics(x),
    "trained": lambda x, y, parts: parts.trained(x),
    "draw": lambda x, y, parts: x + torch.rand_like(x),
    "drop": lambda x, y, parts: F.dropout(x, 0.3),
    "Python's number": lambda x, y, parts: x * random.random(),
    "write": lambda x, y, parts: written(x, lambda one: one.add_(1)),
    "write to a view": lambda x, y, parts: written(x, lambda one: one[:, 0].mul_(2)),
    "write past versions": lambda x, y, parts: written(x, lambda one: one.data.add_(0.5)),
    "write in NumPy": lambda x, y, parts: written(x, lambda one: one.detach().numpy().fill(2)),
    "inplace": lambda x, y, parts: F.relu(x, inplace=not x.requires_grad),
    "look": lambda x, y, parts: x if y.sum() > 1 else x * 2,
    "number": lambda x, y, parts: x + (y[0, 0].item() if y.requires_grad else float(y[0, 0])),
    "weights": lambda x, y, parts: (parts.frozen[0].weight.data.mul_(0.99), x)[1],
    "constant written": lambda x, y, parts: (parts.constant.mul_(0.99), x)[1],
}  # fmt: skip

instructions = st.tuples(st.sampled_from(list(OPERATIONS)), st.integers(0, 9), st.integers(0, 9))


def program(first: list[Any], later: list[Any]) -> Callable[[], Callable[[Any], torch.Tensor]]:
    def made() -> Callable[[Any], torch.Tensor]:
        parts, head = Parts(), nn.Linear(6, 3)
        optimizer = torch.optim.SGD([*head.parameters(), *parts.trained.parameters()], 0.01)
        count = iter(range(1_000_000))

        def step(batch: Any) -> torch.Tensor:
            x, labels = batch
            values = [x.float() / 7]
            for name, one, other in first if next(count) < CHANGES_AT else later:
                own, its = values[one % len(values)], values[other % len(values)]
                values.append(OPERATIONS[name](own, its, parts))
            loss = F.cross_entropy(head(torch.stack(values).sum(0).tanh()), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    return made


def batch() -> list[torch.Tensor]:
    return [torch.randint(0, 9, (4, 6)), torch.randint(0, 3, (4,))]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(instructions, min_size=1, max_size=7),
    st.lists(instructions, max_size=7) | st.none(),
)
def test_every_loss_of_a_random_program_is_the_same(
    first: list[Any], later: list[Any] | None
) -> None:
    training = Training(program(first, first if later is None else later), batch)
    try:
        training.alone(epochs=3, steps=14)
    except RuntimeError:  # what it needs for a gradient is written to
        assume(False)
    training.run(epochs=3, steps=14)
    state = training.loader.state
    event(
        "moved"
        if training.loader.moved
        else f"{state.phase}: {state.proof.why.split(chr(58))[-1][:60]}"
    )
    assert training.loader.moved == 0 or state.phase in (Phase.ON, Phase.FELL_BACK)
