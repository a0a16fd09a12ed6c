"""Checkpoints of `torch.distributed.checkpoint`: what they say of loaders, and to whom.

One process without a group; what several of them write is what each of them writes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import default_planner, state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.utils.data import DataLoader, DistributedSampler

from penstock.trainer.follow import distributed_checkpoint as followed
from penstock.trainer.follow import hugging_face
from penstock.trainer.follow.follower import KEY
from tests.trainer.follow.worlds import Numbers, follow_here

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
SAMPLES = 48
Life = Callable[[], None]


@pytest.fixture
def begin_life(monkeypatch: pytest.MonkeyPatch) -> Life:
    for name in (
        "get_state_dict",
        "get_optimizer_state_dict",
        "set_state_dict",
        "set_optimizer_state_dict",
    ):
        monkeypatch.setattr(state_dict, name, getattr(state_dict, name))  # is put back
    planner = default_planner.DefaultLoadPlanner
    for name in ("set_up_planner", "load_bytes"):
        monkeypatch.setattr(planner, name, vars(planner)[name])
    begin = follow_here(monkeypatch)
    followed.install_state(state_dict)
    followed.install_planner(default_planner)
    return begin


def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(2, 1)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    weights, state = state_dict.get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": state, "step": 0}


def resume(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    read = state_of(model, optimizer)
    load(read, checkpoint_id=folder)
    state_dict.set_state_dict(
        model, optimizer, model_state_dict=read["model"], optim_state_dict=read["optimizer"]
    )
    return read


def loader_of(batch: int, *, drawn: bool) -> DataLoader[int]:
    numbers = Numbers(SAMPLES)
    if drawn:
        generator = torch.Generator().manual_seed(3)
        return DataLoader(numbers, batch, shuffle=True, generator=generator)
    return DataLoader(numbers, batch, sampler=DistributedSampler(numbers, 1, 0))


def train(batch: int, stop: int | None, folder: Path, newest: Path | None, drawn: bool) -> Any:
    """One life; what it has seen."""
    model, optimizer = made()
    if newest is not None:
        assert resume(newest, model, optimizer)["step"] == 1, "what is not a tensor is read as ever"
    seen: list[int] = []
    for at, each in enumerate(loader_of(batch, drawn=drawn), 1):
        optimizer.zero_grad()
        model(each.float().repeat(2, 1).T).sum().backward()
        optimizer.step()
        seen += each.tolist()
        if at == stop:
            save({**state_of(model, optimizer), "step": 1}, checkpoint_id=folder)
            break
    return seen


@pytest.mark.parametrize("drawn", [False, True])
def test_an_epoch_goes_on_where_the_shards_say_in_steps_of_another_size(
    drawn: bool, begin_life: Life, tmp_path: Path
) -> None:
    seen, newest = [], None
    for number, (batch, stop) in enumerate(((4, 3), (8, 2), (12, None))):
        begin_life()
        folder = tmp_path / str(number)
        seen += train(batch, stop, folder, newest, drawn)
        newest = folder
    assert sorted(seen) == list(range(SAMPLES))


def in_mid_epoch(folder: Path) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model whose checkpoint says that a third of an epoch is done."""
    model, optimizer = made()
    batches = iter(loader_of(16, drawn=False))
    next(batches)
    assert KEY in state_of(model, optimizer)["optimizer"]
    save(state_of(model, optimizer), checkpoint_id=folder)
    return model, optimizer


def test_the_model_alone_says_nothing_of_loaders(begin_life: Life, tmp_path: Path) -> None:
    in_mid_epoch(tmp_path)
    begin_life()
    model, _ = made()
    read = {"model": state_dict.get_model_state_dict(model)}
    load(read, checkpoint_id=tmp_path)
    assert set(read) == {"model"}
    assert sorted(each for batch in loader_of(16, drawn=False) for each in batch.tolist()) == list(
        range(SAMPLES)
    )


def test_what_is_read_has_no_entry_more_and_is_read_without_penstock(
    begin_life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = in_mid_epoch(tmp_path)
    begin_life()
    assert KEY not in resume(tmp_path, model, optimizer)["optimizer"]
    assert len(loader_of(16, drawn=False)) == 3
    assert len(list(loader_of(16, drawn=False))) == 2
    monkeypatch.undo()
    model, optimizer = made()
    assert KEY not in resume(tmp_path, model, optimizer)["optimizer"]
    assert len(list(loader_of(16, drawn=False))) == 3


def test_it_is_read_alone_from_the_folder_that_hugging_face_has(
    begin_life: Life, tmp_path: Path
) -> None:
    in_mid_epoch(tmp_path / "optimizer_0")
    saved = hugging_face._saved(tmp_path)
    assert [one["todo"] for one in saved["loaders"]] == [[[16, SAMPLES]]]
    begin_life()
    save(state_of(*made()), checkpoint_id=tmp_path / "outside" / "optimizer_0")
    assert hugging_face._saved(tmp_path / "outside") is None


def test_a_whole_state_that_each_process_reads_is_heard(begin_life: Life) -> None:
    model, optimizer = made()
    batches = iter(loader_of(16, drawn=False))
    next(batches)
    state: Any = state_dict.get_optimizer_state_dict(model, optimizer)
    assert isinstance(state[KEY], str)
    begin_life()
    state_dict.set_optimizer_state_dict(model, optimizer, state)
    assert KEY in state, "the program's own was changed"
    assert len(list(loader_of(16, drawn=False))) == 2


def test_outside_of_an_epoch_a_checkpoint_is_as_without(begin_life: Life) -> None:
    begin_life()
    model, optimizer = made()
    assert set(state_of(model, optimizer)["optimizer"]) == {"state", "param_groups"}


def test_a_damaged_entry_is_named_and_left(
    begin_life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    begin_life()
    model, optimizer = made()
    state: Any = {**state_dict.get_optimizer_state_dict(model, optimizer), KEY: "{"}
    state_dict.set_optimizer_state_dict(model, optimizer, state)
    assert "is not understood" in caplog.text
    assert len(list(loader_of(16, drawn=False))) == 3
