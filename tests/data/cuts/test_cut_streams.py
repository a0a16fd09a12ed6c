"""Loaders whose pipelines are cut: the same batches with any number of data workers.

Data workers on threads share the program's generators: what draws has one that is a process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from penstock.crds import environment as names
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer
from penstock.data.torch_loading.torch_loader import DataLoader
from tests.data.cuts.pictures import Decoded, Pictures, collate, to_tensor
from tests.data.planes import consumer, end, eventually, freeze, spawn, thread_worker

MOST_EPOCHS = 200


def invert(picture: Any) -> Any:
    return picture.point(lambda value: 255 - value)


def pixels(picture: Any) -> Any:
    return np.asarray(picture)[::-1, 2:18]


PLAIN = [invert, pixels, lambda array: to_tensor(array.copy())]
CUTS = ["invert", "pixels", "<lambda>", "collate"]


def loader(of: Consumer | None) -> Loader:
    return Loader(Decoded(), 8, seed=1, stages=PLAIN, collate=collate, consumer=of)


def epoch(batches: Any, of: Consumer | None = None) -> list[Any]:
    """All batches; ``of``: its data workers make some of them."""
    found, before = [], 0 if of is None else of.counts.remote.batches
    for batch in batches:
        if of is not None:
            eventually(partial(_came, of, before + 3), 60)
        found.append(freeze(batch))
    return found


def _came(of: Consumer, wanted: int) -> bool:
    return of.counts.remote.batches >= wanted


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_are_the_same_for_each_cut(
    workers: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alone = epoch(loader(None))
    with consumer() as of, ExitStack() as stack:
        for number in range(workers):
            stack.enter_context(thread_worker(of, tcp=number == 0))
        eventually(lambda: len(of.workers) == workers)
        for cut in CUTS:
            monkeypatch.setenv(names.DATA_CUT, cut)
            assert epoch(loader(of), of if workers else None) == alone, cut
    assert "is not cut" not in caplog.text


def test_a_cut_that_is_decided_later_or_is_impossible_changes_no_batch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alone = epoch(loader(None))
    with consumer() as of, thread_worker(of):
        eventually(lambda: of.workers)
        found = []
        for step, batch in enumerate(loader(of)):
            if step == 0:
                eventually(partial(_came, of, 3), 60)
            if step == 2:
                monkeypatch.setenv(names.DATA_CUT, "<lambda>")
            if step == 5:
                monkeypatch.setenv(names.DATA_CUT, "no such stage")
            found.append(freeze(batch))
        assert found == alone
    said = [one.getMessage() for one in caplog.records if "is not cut" in one.getMessage()]
    assert len(said) == 1
    assert "it has no stage no such stage: invert, pixels" in said[0]


@contextmanager
def process(of: Consumer) -> Iterator[None]:
    made = spawn(of)
    try:
        eventually(lambda: of.workers, 60)
        yield
    finally:
        end(made)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_unmodified_loader_gives_the_same_batches(
    num_workers: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside a local worker as well, which makes whole batches and may be the sooner one."""

    def made() -> Iterator[list[Any]]:
        torch.manual_seed(3)
        found = DataLoader(Pictures(), batch_size=8, shuffle=True, num_workers=num_workers)
        for _ in range(MOST_EPOCHS):
            yield [freeze(batch) for batch in found]

    monkeypatch.setenv(names.DATA_CUT, "to_tensor")
    found = []
    with consumer() as of, process(of):
        module = "penstock.data.torch_loading.torch_loader"
        monkeypatch.setattr(f"{module}.consumer_of_process", lambda: of)
        for batches in made():
            found.append(batches)
            if of.counts.remote.batches > 8:
                break
        assert of.counts.remote.batches > 8
    monkeypatch.setattr(f"{module}.consumer_of_process", lambda: None)
    for batches, alone in zip(found, made(), strict=False):
        assert batches == alone
    assert "is not cut" not in caplog.text
