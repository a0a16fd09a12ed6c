"""A training program without servers: the same numbers as plain PyTorch, and clear refusals."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from penstock.crds import environment
from penstock.parameter_server.worker.checkpoint import CheckpointError
from penstock.trainer import ps

SAMPLES, FIELDS = 70, (11, 5, 30)
GENERATOR = torch.Generator().manual_seed(0)
IDS = torch.stack([torch.randint(size, (SAMPLES,), generator=GENERATOR) for size in FIELDS], 1)
NUMBERS = torch.randn(SAMPLES, 3, generator=GENERATOR)
LABELS = (NUMBERS.sum(1) + (IDS[:, 0] % 3 - 1) > 0).float()


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (environment.TRAINER_ADDRESS, environment.CHECKPOINT_DIR, environment.STEP_LOG):
        monkeypatch.delenv(name, raising=False)


class Net(nn.Module):
    """Tables of two widths, one of them looked up twice, and a dense part."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.deep = ps.Embedding(FIELDS, 4, names=("user", "item", "shop"), std=0.1)
        self.wide = ps.Embedding(sum(FIELDS), 1, std=0.1)
        self.head = nn.Sequential(nn.Linear(12 + 3, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        deep = self.deep(ids).flatten(1)
        wide = self.wide(ids[:, 0]).squeeze(1) + self.wide(ids[:, 1]).squeeze(1)
        logits: torch.Tensor = self.head(torch.cat([deep, numbers], 1)).squeeze(1) + wide
        return logits


class Plain(nn.Module):
    """The same in plain PyTorch, beginning with the given values."""

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.deep = nn.ModuleList(
            nn.Embedding.from_pretrained(state[f"deep.{name}.weight"].clone(), freeze=False)
            for name in ("user", "item", "shop")
        )
        self.wide = nn.Embedding.from_pretrained(state["wide.weight"].clone(), freeze=False)
        self.head = nn.Sequential(nn.Linear(12 + 3, 8), nn.ReLU(), nn.Linear(8, 1))
        self.head.load_state_dict(
            {name[5:]: values for name, values in state.items() if name.startswith("head.")}
        )

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        deep = torch.cat([table(ids[:, field]) for field, table in enumerate(self.deep)], 1)
        wide = self.wide(ids[:, 0]).squeeze(1) + self.wide(ids[:, 1]).squeeze(1)
        logits: torch.Tensor = self.head(torch.cat([deep, numbers], 1)).squeeze(1) + wide
        return logits


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    logits = model(IDS[batch], NUMBERS[batch])
    return functional.binary_cross_entropy_with_logits(logits, LABELS[batch])


def start(
    rule: str = "adagrad", model: nn.Module | None = None, **changes: object
) -> tuple[nn.Module, ps.Optimizer, ps.Session]:
    model = model or Net()
    optimizer = ps.Optimizer(model, rule, lr=0.1)
    fields = {"dataset_size": SAMPLES, "batch_size": 16, "epochs": 2, "seed": 5, **changes}
    # Each test names its own fields.
    return model, optimizer, ps.session(model, optimizer, **fields)  # type: ignore[arg-type]


def train(
    model: nn.Module,
    optimizer: ps.Optimizer,
    session: ps.Session,
    seen: Callable[[torch.Tensor], None] = lambda batch: None,
) -> dict[str, torch.Tensor]:
    with session:
        for batch in session:
            seen(batch)
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves backward untyped
            optimizer.step()
        return session.state_dict()


@pytest.mark.parametrize("rule", ["sgd", "adagrad"])
def test_it_trains_as_plain_pytorch_does(rule: str) -> None:
    _, _, session = start(rule)
    with session:
        plain = Plain(session.state_dict())
    kind = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}[rule]
    plain_optimizer = kind(plain.parameters(), lr=0.1)
    batches: list[torch.Tensor] = []
    state = train(*start(rule), batches.append)
    for batch in batches:
        plain_optimizer.zero_grad()
        # PyTorch leaves backward untyped.
        loss_of(plain, batch).backward()  # type: ignore[no-untyped-call]
        plain_optimizer.step()
    assert [len(batch) for batch in batches] == [16, 16, 16, 16, 6] * 2
    assert sorted(torch.cat(batches[:5]).tolist()) == list(range(SAMPLES))
    torch.testing.assert_close(state["wide.weight"], plain.wide.weight.data, rtol=1e-4, atol=1e-6)
    for field, name in enumerate(("user", "item", "shop")):
        table = plain.deep[field].weight.data
        torch.testing.assert_close(state[f"deep.{name}.weight"], table, rtol=1e-4, atol=1e-6)
    for name, values in plain.head.state_dict().items():
        torch.testing.assert_close(state[f"head.{name}"], values, rtol=1e-4, atol=1e-6)


def test_after_the_loop_the_model_is_as_trained_and_nothing_is_recorded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, optimizer, session = start(epochs=30)
    with session:
        first = None
        for batch in session:
            loss = loss_of(model, batch)
            first = first if first is not None else float(loss.detach())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves backward untyped
            optimizer.step()
        assert session.is_chief
        assert session.finished
        everything = torch.arange(SAMPLES)
        trained = loss_of(model, everything).detach()
        assert first is not None
        assert float(trained) < 0.6 * first
        # `nn.Module` gives attributes as Tensor or Module.
        for name, values in model.head.state_dict().items():  # type: ignore[union-attr]
            assert torch.equal(session.state_dict()[f"head.{name}"], values)
        session.report(loss=float(trained))
    mark, _, figures = capsys.readouterr().out.strip().partition(" ")
    assert mark == "penstock-result"
    result = json.loads(figures)
    assert result["samples_seen"] == SAMPLES * 30
    assert result["samples_lost"] == result["samples_repeated"] == 0


def test_a_run_is_taken_up_from_its_newest_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    undisturbed = train(*start())
    seen: list[torch.Tensor] = []

    def stop(batch: torch.Tensor) -> None:
        seen.append(batch)
        if len(seen) == 8:  # seven were handed in, six of them saved
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(*start(checkpoint_dir=tmp_path, checkpoint_every=3), stop)
    rest: list[torch.Tensor] = []
    taken_up = train(*start(checkpoint_dir=tmp_path, checkpoint_every=3), rest.append)
    assert len(rest) == 4
    assert torch.equal(rest[0], seen[6])
    for name, values in undisturbed.items():
        assert torch.equal(taken_up[name], values), name
    assert len(list(tmp_path.glob("slots-*"))) == 3
    with caplog.at_level(logging.INFO, "penstock.trainer"):
        assert train(*start(checkpoint_dir=tmp_path), rest.append)
    assert len(rest) == 4, "what is trained is not trained again"
    assert [r for r in caplog.records if "nothing is left to train" in r.getMessage()], "in silence"


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    train(*start(checkpoint_dir=tmp_path))
    other = Net()
    other.wide = ps.Embedding(sum(FIELDS) + 1, 1)
    with pytest.raises(
        CheckpointError, match=r"another model: now table wide: 47 rows of 1 instead of 46"
    ):
        train(*start(model=other, checkpoint_dir=tmp_path))
    with pytest.raises(CheckpointError, match=r"global_batch is 8 now and 16 in it"):
        train(*start(checkpoint_dir=tmp_path, batch_size=8))


def test_a_batch_whose_gradients_are_not_finite_changes_nothing_and_is_counted_by_name(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer, session = start(epochs=1)
    with session, caplog.at_level(logging.WARNING):
        before = session.state_dict()
        for batch in session:
            # `nn.Module` gives attributes as Tensor or Module.
            looked_up = model.deep(IDS[batch])  # type: ignore[operator]
            (looked_up[:, 1] * torch.nan).sum().backward()
            optimizer.step()
        after = session.state_dict()
        session.report()
    assert all(torch.equal(values, after[name]) for name, values in before.items())
    result = json.loads(capsys.readouterr().out.partition(" ")[2])
    assert result["dropped"] == {"deep.item": 5}
    assert result["samples_seen"] == SAMPLES, "the batches count as consumed"
    [record] = [r for r in caplog.records if "not finite" in r.getMessage()]
    assert "deep.item" in record.getMessage()


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        (torch.tensor([[10, 4, 29], [0, 5, 1]]), r"5 of field item at \[1, 1\].* rows 0 to 4 "),
        (torch.tensor([[10, 4, -1]]), r"-1 of field shop at \[0, 2\].* rows 0 to 29 "),
        (torch.tensor([[10, 4]]), r"shape \[1, 2\]; .* each of the 3 tables"),
        (torch.tensor([[1.0, 4.0, 1.0]]), "they are integers"),
    ],
)
def test_ids_that_no_table_has_are_refused_by_field(ids: torch.Tensor, what: str) -> None:
    model, _, session = start()
    with session, pytest.raises(ValueError, match=what):
        model.deep(ids)  # type: ignore[operator]  # nn.Module gives attributes as Tensor or Module


def test_misuse_is_named(caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer, session = start()
    with pytest.raises(RuntimeError, match="outside a session"):
        model(IDS, NUMBERS)
    with pytest.raises(RuntimeError, match="outside a session"):
        optimizer.step()
    with session, pytest.raises(ps.SessionError, match="batch 0 was not handed in"):
        list(session)
    with session:
        for batch in session:
            with pytest.raises(ps.SessionError, match="batch 0 has no gradients"):
                optimizer.step()
            # PyTorch leaves backward untyped.
            loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            with pytest.raises(ps.SessionError, match="no batch in work"):
                optimizer.step()
            break
    [record] = [r for r in caplog.records if "before the data were exhausted" in r.getMessage()]
    assert "left after 1 batches" in record.getMessage()
    with pytest.raises(ValueError, match="optimizer: it is that of another model"):
        ps.session(Net(), optimizer, dataset_size=1, batch_size=1)
    plain = torch.optim.Adam([torch.zeros(1)])
    with pytest.raises(ValueError, match=r"optimizer: torch\.optim\.adam\.Adam; .* ps\.Optimizer"):
        # The wrong optimizer is to be refused.
        ps.session(model, plain, dataset_size=1, batch_size=1)  # type: ignore[arg-type]


def test_a_model_that_changes_or_does_not_fit_is_refused_by_name() -> None:
    model, optimizer, session = start()

    def add(batch: torch.Tensor) -> None:
        model.late = nn.Linear(2, 2)

    with pytest.raises(ps.SessionError, match=r"parameter late\.weight: it was added"):
        train(model, optimizer, session, add)
    halves = Net()
    halves.head = halves.head.half()
    with pytest.raises(ValueError, match=r"parameter head\.0\.weight: of type torch\.float16"):
        start(model=halves)
    with pytest.raises(ValueError, match="nothing to train"):
        start(model=nn.ReLU())


@pytest.mark.parametrize(
    "changes",
    [{"batch_size": 0}, {"epochs": 0}, {"staleness": -1}, {"checkpoint_every": -1}],
)
def test_a_wrong_argument_is_refused_by_name(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        start(**changes)


def test_what_stays_plain_pytorch_is_trained_too() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 4)
            self.frozen = nn.Linear(4, 4).requires_grad_(requires_grad=False)
            self.out = nn.Linear(4, 1)

        def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.out(self.frozen(self.table(ids[:, 0]))).squeeze(1)
            return logits

    model = Mixed()
    state = train(*start(model=model))
    assert set(state) == {"table.weight", "out.weight", "out.bias"}
    assert torch.equal(state["table.weight"], model.table.weight)


def test_random_numbers_in_a_batch_depend_on_the_batch_alone() -> None:
    draws: list[float] = []
    for _ in range(2):
        train(*start(epochs=1), lambda batch: draws.append(torch.rand(()).item()))
    assert draws[:5] == draws[5:]
    assert len(set(draws)) == 5


def test_the_counting_table_counts_every_sample_once_per_epoch() -> None:
    model = ps.Embedding(SAMPLES, 1, std=0.0)
    optimizer = ps.Optimizer(model, "sgd", lr=1.0)
    with ps.session(
        model, optimizer, dataset_size=SAMPLES, batch_size=16, epochs=3, seed=5
    ) as session:
        for batch in session:
            (-model(batch).sum()).backward()
            optimizer.step()
        [counts] = session.state_dict().values()
    assert np.array_equal(counts.numpy(), np.full((SAMPLES, 1), 3.0))
