"""What a training program can get wrong, alone: named at once, and never half done."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from penstock.crds import environment
from penstock.parameter_server.protocol import MAX_DROPPED
from penstock.parameter_server.worker.checkpoint import CheckpointError, ModelFiles
from penstock.parameter_server.worker.client import ParametersError
from penstock.trainer import ps

ROWS = 20


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (environment.TRAINER_ADDRESS, environment.CHECKPOINT_DIR, environment.STEP_LOG):
        monkeypatch.delenv(name, raising=False)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = ps.Embedding(ROWS, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.table(ids))
        return found


def train(
    model: nn.Module, body: Callable[[ps.Session, torch.Tensor], None] | None = None, **changes: Any
) -> dict[str, torch.Tensor]:
    optimizer = ps.Optimizer(model, "sgd", lr=0.1)
    with ps.session(model, optimizer, ROWS, 5, **changes) as session:
        for batch in session:
            if body is not None:
                body(session, batch)
            model(batch).sum().backward()
            optimizer.step()
        return session.state_dict()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((20.0, 4), r"sizes: 20\.0; an integer"),
        ((["20"], 4), "sizes: '20'; an integer"),
        ((1 << 31, 4), "sizes: 2147483648; at least 1 and at most 2147483647"),
        (([3, 0], 4), "sizes: 0; at least 1"),
        (([], 4), "sizes: empty"),
        ((3, 4.5), r"dim: 4\.5; an integer"),
        ((3, 1 << 17), "dim: 131072; at least 1 and at most 65536"),
        (([3, 4], 4, ["", "b"]), "names: .* none may be empty"),
    ],
)
def test_a_table_that_cannot_be_is_refused(arguments: tuple[Any, ...], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        ps.Embedding(*arguments)


def test_sizes_may_be_integers_of_any_kind() -> None:
    # Sizes that are no plain ints.
    assert ps.Embedding(np.int64(7), np.int32(2)).sizes == (7,)  # type: ignore[arg-type]
    # Sizes that are no plain ints.
    assert ps.Embedding(torch.tensor([7, 3]), 2).sizes == (7, 3)  # type: ignore[arg-type]
    assert train(Net(), epochs=np.int64(2))["table.weight"].shape == (ROWS, 4)


def test_what_no_server_takes_is_refused_with_its_name() -> None:
    wide = ps.Embedding([(1 << 31) - 1, 1], 1)
    with pytest.raises(ValueError, match=r"^model: tables of width 1 have 2147483648 rows"):
        ps.session(wide, ps.Optimizer(wide), 10, 5)
    named = ps.Embedding([3], 1, names=["x" * 300])
    with pytest.raises(ValueError, match=r"model: name: .* at most 200 characters"):
        ps.session(named, ps.Optimizer(named), 10, 5)
    lazy = nn.LazyLinear(1)
    with pytest.raises(ValueError, match="parameter weight: its shape is not known"):
        ps.session(lazy, ps.Optimizer(lazy), 10, 5)


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset_size": 20.5},
        {"batch_size": 0},
        {"batch_size": 2.5},
        {"epochs": 0},
        {"staleness": 1.5},
        {"checkpoint_every": 1e3},
        {"keep_checkpoints": 0},
        {"seed": 1 << 80},
        {"seed": 0.5},
    ],
)
def test_an_argument_of_a_session_is_refused_by_its_own_name(changes: dict[str, Any]) -> None:
    [(name, _)] = changes.items()
    model = Net()
    fields: dict[str, Any] = {"dataset_size": ROWS, "batch_size": 5, **changes}
    with pytest.raises(ValueError, match=f"^{name}: "):
        ps.session(model, ps.Optimizer(model), **fields)


def test_what_is_no_optimizer_of_ours_says_what_is() -> None:
    model = Net()
    with pytest.raises(ValueError, match=r"model: a generator; a ps\.Optimizer takes the model"):
        # A wrong argument is to be refused.
        ps.Optimizer(model.parameters())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"SGD; .* give a ps\.Optimizer"):
        # The wrong optimizer is to be refused.
        ps.session(model, torch.optim.SGD(model.parameters()), 10, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lr: '0\.1'; a finite number above 0"):
        ps.Optimizer(model, lr="0.1")  # type: ignore[arg-type]  # a wrong argument is to be refused
    with pytest.raises(AttributeError, match="lr"):
        # The assignment is what is refused.
        ps.Optimizer(model).lr = 0.5  # type: ignore[attr-defined]


def test_ids_that_are_no_tensor_are_refused() -> None:
    model = Net()
    with pytest.raises(ValueError, match="ids: a ndarray; they are a tensor of integers"):
        model.table(np.arange(3))


def test_no_ids_at_all_are_no_rows() -> None:
    def nothing(session: ps.Session, batch: torch.Tensor) -> None:
        model(batch[:0]).sum().backward()

    model = Net()
    assert train(model, nothing)["table.weight"].isfinite().all()


def test_a_sparse_gradient_is_one_like_any_other() -> None:
    tables = [nn.Embedding(ROWS, 2, sparse=sparse) for sparse in (False, True)]
    tables[1].load_state_dict(tables[0].state_dict())
    dense, sparse = (train(table)["weight"] for table in tables)
    assert torch.equal(dense, sparse)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # dynamo's
def test_a_compiled_model_looks_its_rows_up_all_the_same() -> None:
    torch.manual_seed(3)
    plain = Net()
    compiled = torch.compile(copy.deepcopy(plain), backend="eager")
    # `torch.compile` gives a callable for type checkers.
    expected, found = train(plain), train(compiled)  # type: ignore[arg-type]
    assert torch.equal(expected["table.weight"], found["_orig_mod.table.weight"])


def test_a_copy_of_the_model_is_in_no_session() -> None:
    copies = []

    def keep(session: ps.Session, batch: torch.Tensor) -> None:
        copies.append(copy.deepcopy(model))
        copies.append(pickle.loads(pickle.dumps(model)))

    model = Net()
    train(model, keep)
    with pytest.raises(RuntimeError, match="outside a session"):
        copies[-1](torch.arange(3))


def test_threads_of_the_program_may_look_up_together() -> None:
    def look_up() -> None:
        for _ in range(50):
            with torch.no_grad():
                model(torch.arange(ROWS))

    def together(session: ps.Session, batch: torch.Tensor) -> None:
        with ThreadPoolExecutor(4) as threads:
            for each in [threads.submit(look_up) for _ in range(4)]:
                each.result(20)

    model = Net()
    train(model, together)


def test_a_forked_process_is_told_that_the_session_is_not_its_own() -> None:
    context = multiprocessing.get_context("fork")
    said = context.SimpleQueue()

    def child() -> None:
        try:
            model(torch.arange(3))
        except ps.SessionError as error:
            said.put(str(error))

    def fork(session: ps.Session, batch: torch.Tensor) -> None:
        if session.batches == 1:
            process = context.Process(target=child)
            process.start()
            process.join(20)

    model = Net()
    train(model, fork)
    assert "forked" in said.get()


def test_a_forked_process_ends_when_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net()
    session = ps.session(model, ps.Optimizer(model), ROWS, 5)
    with session:
        child = os.fork()
        if not child:
            session._on_sigterm(signal.SIGTERM, None)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not session._drain
        session._on_sigterm(signal.SIGTERM, None)
        assert session._drain


def test_a_figure_that_is_no_number_does_not_cost_the_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = Net()
    with ps.session(model, ps.Optimizer(model), ROWS, 5) as session:
        figures: dict[str, Any] = {
            "auc": float("nan"),
            "loss": torch.tensor(0.5),
            "rows": np.int64(3),
            "note": [1],
        }
        session.report(**figures)
    result = json.loads(capsys.readouterr().out.partition(" ")[2])
    assert (result["auc"], result["loss"], result["rows"], result["note"]) == (None, 0.5, 3, "[1]")


def test_so_many_parameters_are_named_at_most() -> None:
    model = Net()
    with ps.session(model, ps.Optimizer(model), ROWS, 5) as session:
        session._drop([f"p{number}" for number in range(MAX_DROPPED + 5)])
        session._drop(["p0"])
        assert session._runner is not None
        assert len(session._runner.dropped) == MAX_DROPPED
        assert session._runner.dropped["p0"] == 2


def test_a_folder_that_cannot_be_written_is_known_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/model")):
        with pytest.raises(CheckpointError, match=f"checkpoint_dir: {folder}: "):
            train(Net(), checkpoint_dir=folder)


def test_a_save_that_fails_is_tried_again_and_only_the_last_one_fails_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = []

    def full(*_: object) -> None:
        attempts.append(1)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ModelFiles, "write", full)
        with pytest.raises(ParametersError, match=r"not on disk in .*No space left.*make room"):
            train(Net(), checkpoint_dir=tmp_path, checkpoint_every=2)
    assert len(attempts) == 2
    assert caplog.text.count("no checkpoint is written") == 1
    train(Net(), checkpoint_dir=tmp_path, checkpoint_every=2)
