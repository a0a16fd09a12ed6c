"""Clipped and accumulated gradients: any number of workers does what one plain process does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.elastic.processes import RESULT, run_alone, running_job
from penstock.data.ledger import SampleOrder
from tests.patience import patient
from tests.trainer.programs import clipping

PROGRAM = (sys.executable, "-m", "tests.trainer.programs.clipping")


def plain(max_norm: float, parts: int) -> dict[str, torch.Tensor]:
    """PyTorch without Penstock: each batch in a number of micro-batches, clipped by global norm."""
    model, optimizer = clipping.parts()
    order = SampleOrder(clipping.SAMPLES, clipping.GLOBAL_BATCH, 1, clipping.EPOCHS, clipping.SEED)
    for number in range(order.total_steps):
        batch = torch.from_numpy(order.samples(order.slot(number)))
        optimizer.zero_grad()
        for micro in batch.tensor_split(parts):
            output = model(clipping.FEATURES[micro])
            loss = functional.cross_entropy(output, clipping.TARGETS[micro], reduction="sum")
            (loss / len(batch)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return dict(model.state_dict())


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(torch.allclose(left[name], right[name], rtol=1e-4, atol=1e-5) for name in left)


def test_clipping_matters_and_how_a_batch_is_accumulated_does_not() -> None:
    assert not same(plain(clipping.MAX_NORM, 1), plain(1e9, 1))
    assert same(plain(clipping.MAX_NORM, 1), plain(clipping.MAX_NORM, 4))


@pytest.mark.parametrize("slots", [1, 5])
def test_alone(tmp_path: Path, slots: int) -> None:
    printed = run_alone(*PROGRAM, str(tmp_path / "weights"), str(slots))
    assert json.loads(RESULT.findall(printed)[-1])["widest"] == 1
    assert same(torch.load(tmp_path / "weights"), plain(clipping.MAX_NORM, 1))


@pytest.mark.slow
def test_two_workers_clip_the_sum_of_their_gradients(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *PROGRAM, str(tmp_path / "weights"), "4")
        assert set(job.exit_codes(patient(10)).values()) == {0}, job.logs()
        assert job.result()["widest"] == 2
    assert same(torch.load(tmp_path / "weights"), plain(clipping.MAX_NORM, 4))
