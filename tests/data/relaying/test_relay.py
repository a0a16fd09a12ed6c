"""A data worker that takes batches from data workers: same bits, whoever is there or killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer
from penstock.data.pipeline import Stage
from tests.data.planes import TOKEN, Noise, consumer, end, eventually, same
from tests.fork_server import Forked, start

STEPS, BATCH = 100, 4
RELAY = """
import sys
from penstock.data.protocol import ConsumerEntry
from penstock.data.relaying.relay import Relay
from penstock.data.serving.worker import DataWorker, work
address, local, token = sys.argv[1:]
entry = ConsumerEntry(name="program", address=address, local=local)
relay = Relay(token, "127.0.0.1")
print(relay.entry.address, relay.entry.local, flush=True)
work(DataWorker(token=token, consumers=(entry,), before=relay))
"""
FIRST = """
import sys
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.worker import DataWorker, work
token, *places = sys.argv[1:]
entries = tuple(
    ConsumerEntry(name=name, address=address, local=local)
    for name, address, local in zip(places[::3], places[1::3], places[2::3])
)
work(DataWorker(token=token, consumers=entries))
"""


class Slow(Noise):
    """Samples that take a while and say who made them, beside random numbers."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**super().__getitem__(index), "maker": os.getpid()}


def sign(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "noise": batch["numpy"] + np.random.rand(), "runner": os.getpid()}


def loader(of: Consumer | None, seconds: float = 0.004) -> Loader:
    data = Slow(STEPS * BATCH, seconds)
    return Loader(data, BATCH, seed=1, stages=[Stage(sign, batched=True)], consumer=of)


def without_names(batches: list[Any]) -> list[Any]:
    return [{k: v for k, v in one.items() if k not in ("maker", "runner")} for one in batches]


@pytest.fixture(scope="module")
def alone() -> list[Any]:
    return without_names(list(loader(None, 0.0)))


class Plane:
    """A relay and data workers of the first stage, as processes."""

    def __init__(self, of: Consumer, stack: ExitStack) -> None:
        self.of, self._stack = of, stack
        self.relay_place = ""

    def relay(self) -> Forked:
        arguments = ["-c", RELAY, self.of.address, self.of.local, TOKEN]
        process = start(arguments, stdout=subprocess.PIPE)
        self._stack.callback(end, process)
        assert process.stdout is not None
        self.relay_place = process.stdout.readline().strip()
        process.stdout.close()
        return process

    def first(self, *, to_program: bool = True) -> Forked:
        places = ["program", self.of.address, self.of.local] if to_program else []
        if self.relay_place:
            places += ["relay", *self.relay_place.split(" ")]
        process = start(["-c", FIRST, TOKEN, *places])
        self._stack.callback(end, process)
        return process


@contextmanager
def plane() -> Iterator[Plane]:
    with consumer() as of, ExitStack() as stack:
        yield Plane(of, stack)


def count(batches: list[Any], maker: int, runner: int) -> int:
    return sum(one["runner"] == runner and set(one["maker"]) == {maker} for one in batches)


@pytest.mark.slow
def test_a_relay_runs_the_stage_on_what_others_have_made(alone: list[Any]) -> None:
    with plane() as here:
        relay, first = here.relay(), here.first()
        eventually(lambda: len(here.of.workers) == 2, 40)
        through, epochs = 0, 0
        while not through:  # to open the pipeline twice takes a while
            batches = list(loader(here.of))
            assert same(without_names(batches), alone)
            through, epochs = count(batches, first.pid, relay.pid), epochs + 1
            assert epochs < 10, "nothing went through the relay"


@pytest.mark.slow
def test_a_relay_without_data_workers_before_it_makes_all_of_it(alone: list[Any]) -> None:
    with plane() as here:
        relay = here.relay()
        eventually(lambda: here.of.workers, 40)
        made, epochs = 0, 0
        while not made:
            batches = list(loader(here.of))
            assert same(without_names(batches), alone)
            made, epochs = count(batches, relay.pid, relay.pid), epochs + 1
            assert epochs < 10, "the relay made nothing"


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["relay", "first"])
def test_a_kill_in_the_middle_loses_nothing(alone: list[Any], victim: str) -> None:
    with plane() as here:
        relay, first = here.relay(), here.first(to_program=victim == "relay")
        eventually(lambda: len(here.of.workers) == (2 if victim == "relay" else 1), 40)
        killed, epochs = False, 0
        while not killed:  # to open the pipeline twice takes a while
            batches = []
            for batch in loader(here.of, 0.01):
                batches.append(batch)
                through = batch["runner"] == relay.pid and set(batch["maker"]) == {first.pid}
                if through and not killed:
                    (relay if victim == "relay" else first).kill()
                    killed = True
            assert same(without_names(batches), alone)
            epochs += 1
            assert epochs < 10, "nothing went through the relay"
