"""Stages of whole batches: the same batch wherever each of them runs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from penstock.data import Loader
from penstock.data.collate import stack
from penstock.data.pipeline import Pipeline, Stage
from tests.data.planes import Noise, Plain, consumer, end, eventually, same, spawn, thread_worker


def halve(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "numpy": sample["numpy"] / 2}


def jitter(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "numpy": batch["numpy"] + np.random.rand(), "drawn": random.random()}


def total(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "total": batch["numpy"].sum(axis=(1, 2, 3))}


STAGES = (halve, Stage(jitter, batched=True), Stage(total, batched=True))


@pytest.mark.parametrize("until", [0, 1, 2])
def test_a_batch_that_is_made_in_two_places_is_the_batch(until: int) -> None:
    pipeline = Pipeline(Noise(), stack, [Stage(halve), *STAGES[1:]])
    whole = pipeline.make(3, [4, 5, 6])
    part = pipeline.make(3, [4, 5, 6], until=until)
    assert ("drawn" in part, "total" in part) == (until > 0, until > 1)
    random.seed(99)
    np.random.seed(99)
    assert same([pipeline.finish(3, [4, 5, 6], part, until)], [whole])


def test_they_come_after_collating_and_what_they_draw_is_their_own() -> None:
    plain = list(Loader(Noise(), 4, seed=1))
    staged = list(Loader(Noise(), 4, seed=1, stages=STAGES))
    for one, other in zip(plain, staged, strict=True):
        moved = other["numpy"] - one["numpy"] / 2
        assert np.allclose(moved, moved.flat[0])
        assert np.array_equal(other["numpy"].sum(axis=(1, 2, 3)), other["total"])
    assert len({batch["drawn"] for batch in staged}) == len(staged)


def test_data_workers_run_them_too() -> None:
    alone = list(Loader(Plain(), 4, seed=1, stages=STAGES))
    with consumer() as of, thread_worker(of):
        eventually(lambda: of.workers)
        assert same(list(Loader(Plain(), 4, seed=1, stages=STAGES, consumer=of)), alone)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Stage(halve, device="cuda"), "give batched=True"),
        (lambda: Stage(halve, device="tpu", batched=True), "'tpu'"),
        (lambda: Loader(Noise(), stages=(STAGES[1], halve)), "comes after one of whole batches"),
    ],
)
def test_what_cannot_be_a_stage_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.slow
def test_without_a_data_worker_that_has_the_device_the_program_runs_the_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program has a device here that no data worker has."""
    called: list[str] = []

    def call(device: str, function: Any, batch: Any) -> Any:
        called.append(device)
        return function(batch)

    monkeypatch.setattr("penstock.data.pipeline.call_on", call)
    stages = (halve, Stage(jitter, batched=True), Stage(total, device="cuda", batched=True))
    alone = list(Loader(Noise(), 4, seed=1, stages=stages))
    called.clear()
    with consumer() as of:
        process = spawn(of)
        try:
            eventually(lambda: of.workers, 40)
            epochs = 0
            while not of.counts.arrived and epochs < 20:  # to open the pipeline takes a while
                loader = Loader(Noise(60, 0.005), 4, seed=1, stages=stages, consumer=of)
                assert same(list(loader), alone)
                epochs += 1
        finally:
            end(process)
        assert of.counts.arrived > 0
        assert called.count("cuda") == epochs * len(alone)
        assert called.count("cpu") == of.counts.made_here


@pytest.mark.gpu
def test_a_stage_with_a_device_gets_its_batch_there_and_gives_it_back() -> None:
    import torch

    seen: list[Any] = []

    def double(batch: Any) -> Any:
        seen.append(batch["x"].device.type)
        return {"x": batch["x"] * 2, "rows": (batch["x"].sum(1),)}

    pipeline = Pipeline(
        [{"x": torch.ones(3)}] * 4,
        torch.utils.data.default_collate,
        [Stage(double, device="cuda", batched=True)],
    )
    made = pipeline.make(1, [0, 1, 2])
    assert seen == ["cuda"]
    assert made["x"].device.type == made["rows"][0].device.type == "cpu"
    assert torch.equal(made["x"], torch.full((3, 3), 2.0))
