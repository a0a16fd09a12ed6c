"""Which maker is asked for which steps, by what is known of their speed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, cast

import pytest

from penstock.data.memory import NO_LIMIT_BYTES, Memory
from penstock.data.queue.assignment import assign_steps, assign_streams, expected_workers
from penstock.data.queue.batch_queue import BatchQueue, Counts, QueueOptions
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.window.reorder_buffer import ReorderBuffer


@dataclass(eq=False)
class Maker:
    name: str
    batch_seconds: float | None = None
    local: bool = False
    number: int = 0


class Assigning:
    """A queue of many steps and its makers."""

    def __init__(self, makers: list[Maker]) -> None:
        self.makers = makers
        options = QueueOptions(key=b"k", seed=1)
        self.queue = BatchQueue(threading.Condition(), Counts(), 1, options)
        self.window = cast("ReorderBuffer", self.queue.window)
        for step in range(1000):
            self.window.feed([step])
        self.window.end()

    def ask(self, *usable: Maker, alone: bool = False) -> dict[str, list[int]]:
        makers = list(usable) or self.makers
        free = Memory(NO_LIMIT_BYTES, NO_LIMIT_BYTES)
        self.queue.bind(len(makers), free, 0)
        steps = assign_steps(self.queue, cast("list[WorkerConnection]", makers), alone=alone)
        found: dict[Any, list[tuple[int, Any]]] = dict(steps)
        return {link.name: [step for step, _ in asked] for link, asked in found.items()}


@pytest.mark.parametrize("seconds", [None, 2.0])
def test_whoever_comes_first_does_not_get_two_neighbouring_steps(seconds: float | None) -> None:
    first, second, third = makers = [Maker(name, seconds) for name in ("a", "b", "c")]
    assigning = Assigning(makers)
    assert assigning.ask(first) == {"a": [0]}
    assert assigning.ask(first, second) == {"b": [1], "a": [2]}
    assert assigning.ask(first, second, third) == {"c": [3], "b": [4]}
    assert assigning.ask(first, second, third) == {"c": [5]}
    assert assigning.ask() == {}


def test_a_single_maker_has_a_step_to_go_on_with() -> None:
    assert Assigning([Maker("a")]).ask(alone=True) == {"a": [0, 1]}


def test_quick_batches_are_asked_for_together() -> None:
    assigning = Assigning([Maker("a", 0.001), Maker("b", 0.001)])
    found = assigning.ask()
    assert sorted(found["a"] + found["b"]) == list(range(len(found["a"]) + len(found["b"])))
    assert min(len(found["a"]), len(found["b"])) > 1


def test_a_slow_one_holds_fewer_steps() -> None:
    assigning = Assigning([Maker("quick", 1.0), Maker("slow", 4.0)])
    found = [assigning.ask() for _ in range(3)]
    assert [asked.get("slow") for asked in found] == [[1], None, None]
    assert [asked.get("quick") for asked in found] == [[0], [2], None]


def streams(count: int, **options: Any) -> BatchQueue:
    """A queue of the streams of an iterated dataset."""
    told = QueueOptions(key=b"k", seed=1, streams=count, **options)
    return BatchQueue(threading.Condition(), Counts(), 1, told)


def held(queue: BatchQueue, makers: list[Maker], expected: int) -> list[int]:
    """How many streams each has after they were given out."""
    queue.bind(len(makers), Memory(NO_LIMIT_BYTES, NO_LIMIT_BYTES), 0)
    assign_streams(queue, cast("list[WorkerConnection]", makers), expected)
    # union-attr: its window is one of batches.
    return [queue.window.held_by(one.name) for one in makers]  # type: ignore[union-attr]


def test_the_first_data_worker_leaves_streams_to_those_on_their_way() -> None:
    first, second = Maker("a"), Maker("b")
    queue = streams(7)
    assert held(queue, [first], 1) == [4]
    assert held(queue, [first], 1) == [4]
    assert held(queue, [first, second], 0) == [4, 3]


def test_a_data_worker_has_all_streams_when_nobody_else_comes() -> None:
    queue = streams(7)
    assert held(queue, [Maker("a")], 1) == [4]
    assert held(queue, [Maker("a")], 0) == [7]


def test_streams_are_kept_as_long_as_a_queue_says() -> None:
    queue = streams(2, opening_seconds=60.0)
    assert expected_workers(queue, 50.0, missing=1, opening=2) == 2
    assert expected_workers(queue, 61.0, missing=1, opening=2) == 0
    assert expected_workers(streams(2), 11.0, missing=0, opening=2) == 0
