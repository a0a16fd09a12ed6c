"""The collectives of real gloo processes: sums, members that die, and what none can sum."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
import torch

from penstock.trainer.group.backend_choice import Backend
from penstock.trainer.group.collective import (
    Collective,
    CollectiveError,
    Gradients,
    join_store,
    serve_store,
)
from penstock.trainer.group.step_barrier import GroupBrokenError

HOST = "127.0.0.1"
Part = Callable[[Collective, int], object]


def run(port: int, rank: int, part: Part, answer: Connection) -> None:
    store = join_store(HOST, port, 2)
    collective = Collective(store, HOST, rank, 2, backend=Backend.GLOO, timeout_seconds=20)
    try:
        answer.send(part(collective, rank))
    except Exception as error:  # noqa: BLE001  (goes to the test)
        answer.send(error)


def both(part: Part) -> list[object]:
    """What each of two processes makes of its part; None: it died."""
    context = multiprocessing.get_context("spawn")  # PyTorch has threads, which no fork survives
    store = serve_store(HOST, 2)
    answers, processes = [], []
    for rank in range(2):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=run, args=(store.port, rank, part, there), daemon=True)
        process.start()
        there.close()
        answers.append(here)
        processes.append(process)
    found: list[object] = []
    for here in answers:
        try:
            found.append(here.recv() if here.poll(50) else TimeoutError())
        except EOFError:
            found.append(None)
    for process in processes:
        process.kill()  # what it had to say has been said
        process.join()
    return found


@pytest.mark.parametrize("host", ["127.0.0.9", "::1"])
def test_the_store_listens_at_the_address_of_its_member_alone(host: str) -> None:
    store = serve_store(host, 2)
    join_store(host, store.port, 2).set("a", b"1")
    assert store.get("a") == b"1"
    for other in ("127.0.0.1", "127.0.0.8"):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((other, store.port), 5)


def average(collective: Collective, rank: int) -> object:
    model = torch.nn.BatchNorm1d(2)
    model.weight.grad = torch.full((2,), float(rank + 1))
    # It has statistics.
    model.running_mean.fill_(rank)  # type: ignore[union-attr]
    Gradients(model).reduce(collective, 0.5)
    # It has statistics.
    return model.weight.grad.tolist(), model.running_mean.tolist()  # type: ignore[union-attr]


def die(collective: Collective, rank: int) -> object:
    collective.sum([torch.ones(4)])
    if rank:
        os.kill(os.getpid(), signal.SIGKILL)
    collective.sum([torch.ones(1 << 20)])
    return "summed"


def sum_a_strange_type(collective: Collective, rank: int) -> object:
    collective.sum([torch.zeros(4).to(torch.float8_e4m3fn)])
    return "summed"


def test_gradients_add_up_and_statistics_are_averaged() -> None:
    assert both(average) == [([3.0, 3.0], [0.5, 0.5])] * 2


def test_a_member_that_dies_between_two_sums_is_a_lost_one() -> None:
    survivor, dead = both(die)
    assert dead is None
    assert isinstance(survivor, GroupBrokenError)
    assert "a member was lost in a sum: " in str(survivor)
    assert "\n" not in str(survivor)


def test_a_type_that_cannot_be_summed_is_no_lost_member() -> None:
    for found in both(sum_a_strange_type):
        assert isinstance(found, CollectiveError)
        assert str(found) == "a sum failed: Invalid scalar type"


def test_an_address_that_is_not_of_this_machine_is_no_lost_member() -> None:
    store = serve_store(HOST, 2)
    with pytest.raises(CollectiveError, match="the members cannot connect: Cannot resolve"):
        Collective(store, "10.99.9.9", 0, 2, backend=Backend.GLOO, timeout_seconds=2)
