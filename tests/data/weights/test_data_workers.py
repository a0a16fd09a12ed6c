"""Data workers of one node: a large frozen module reaches the node once, whoever is killed."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from penstock.crds import environment as names
from penstock.data.consuming.batch_stream import BatchStream, Source, StreamOptions
from penstock.data.consuming.consumer import Consumer
from penstock.data.offloading.arguments import Built, Leaf
from penstock.data.offloading.batch_calls import BatchCall, BatchCalls, split
from penstock.data.offloading.portable import pack_function
from penstock.data.offloading.surroundings import Surroundings
from penstock.data.pipeline import BatchId, Pipeline, pack_pipeline
from tests.data.planes import TOKEN, consumer, end, eventually, spawn

WIDTH = 1024


class Rows:
    """Samples for a linear layer."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(0.005)
        return {"x": torch.full((WIDTH,), index / 7)}


class Epoch:
    """Steps of an epoch with a call of a module in each; those whose result came, are counted."""

    def __init__(self, module: torch.nn.Module, of: Consumer) -> None:
        self.module, self.came = module, 0
        named = Built(dict, (), ())
        function = pack_function(module)
        positional = Built(tuple, (), (Leaf(("x",)),))
        call = BatchCall(0, function, positional, named, Surroundings.here())
        raw = Pipeline(Rows(), default_collate)
        sent = Pipeline(Rows(), default_collate, batch_stage=BatchCalls((call,)))
        assert function.weights is not None
        self.size = function.weights.size
        steps = ([step % 100, step % 70] for step in itertools.count())
        source = Source(raw, b"", lambda: pack_pipeline(sent, TOKEN), at_once=True)
        name = BatchId("train", 0, 0, 0)
        self.stream = BatchStream(of, source, 1, name, steps, StreamOptions(), [])

    def go_on(self, count: int) -> None:
        """Until so many more results have come, each the same bit by bit."""
        wanted = self.came + count
        deadline = time.monotonic() + 60
        while self.came < wanted:
            assert time.monotonic() < deadline, f"{self.came} of {wanted} results came"
            batch, results = split(next(self.stream))
            for result in results:
                assert result.why == ""
                with torch.no_grad():
                    assert torch.equal(result.value, self.module(batch["x"]))
                self.came += 1


@pytest.mark.slow
@pytest.mark.parametrize("tcp", [False, True])
def test_a_large_module_is_sent_once_to_a_node_and_others_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tcp: bool
) -> None:
    monkeypatch.setenv(names.WEIGHTS_DIR, str(tmp_path / "weights"))
    torch.manual_seed(1)
    module = torch.nn.Linear(WIDTH, WIDTH).eval().requires_grad_(requires_grad=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    workers = []
    try:
        with consumer() as of:
            workers += [spawn(of, tcp=tcp), spawn(of, tcp=tcp)]
            eventually(lambda: len(of.workers) == 2, 40)
            epoch = Epoch(module, of)
            epoch.go_on(20)
            assert of.counts.weight_bytes == epoch.size
            end(workers.pop())
            workers.append(spawn(of, tcp=tcp))
            eventually(lambda: len(of.workers) == 2, 40)
            end(workers.pop(0))
            epoch.go_on(20)
            assert of.counts.weight_bytes == epoch.size
            epoch.stream.close()
    finally:
        torch.set_num_threads(threads)
        for one in workers:
            end(one)
