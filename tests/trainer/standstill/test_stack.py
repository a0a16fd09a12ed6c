"""What a stack says: read as faulthandler writes it, told apart by where it waits."""

from __future__ import annotations

import faulthandler
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.trainer.standstill.stack import (
    Frame,
    Kind,
    Look,
    kind_of,
    main_thread,
    movement,
    moves_on,
    place_of,
)

SITE = "/venv/lib/python3.11/site-packages/"
TRAIN = Frame("/home/me/train.py", 40, "main")


def frames(*paths: str) -> tuple[Frame, ...]:
    return tuple(TRAIN if path == "train.py" else Frame(SITE + path, 10, "call") for path in paths)


def test_a_written_stack_is_read(tmp_path: Path) -> None:
    file = os.open(tmp_path / "stack", os.O_RDWR | os.O_CREAT)
    try:
        faulthandler.dump_traceback(file, all_threads=False)
    finally:
        os.close(file)
    innermost = main_thread((tmp_path / "stack").read_text())[0]
    assert innermost.function == "test_a_written_stack_is_read"
    assert innermost.path == __file__


@pytest.mark.parametrize(
    ("stack", "cpu_seconds", "kind"),
    [
        (frames("torch/distributed/distributed_c10d.py", "train.py"), 0.0, Kind.COLLECTIVE),
        (frames("torch/autograd/graph.py", "torch/_tensor.py", "train.py"), 0.0, Kind.COLLECTIVE),
        (frames("torch/autograd/graph.py", "torch/_tensor.py", "train.py"), 2.0, Kind.LOOPS),
        (frames("torch/serialization.py", "train.py"), 0.0, Kind.CHECKPOINT),
        (frames("torch/utils/data/dataloader.py", "train.py"), 0.0, Kind.DATA),
        (frames("train.py"), 0.0, Kind.WAITS),
        (frames("train.py"), 2.0, Kind.LOOPS),
        ((), 0.0, Kind.UNKNOWN),
    ],
)
def test_kinds(stack: tuple[Frame, ...], cpu_seconds: float, kind: Kind) -> None:
    looks = [Look("S", 5.0, stack), Look("S", 5.0 + cpu_seconds, stack)]
    assert kind_of(looks, 2.0, 2) is kind


def test_a_lock_within_a_wrapped_model_is_no_collective() -> None:
    stack = (
        Frame("/home/me/model.py", 3, "forward"),
        *frames("torch/nn/modules/module.py", "torch/nn/parallel/distributed.py", "train.py"),
    )
    assert kind_of([Look("S", 1.0, stack)], 2.0, 2) is Kind.WAITS
    assert str(place_of(stack)) == "forward (/home/me/model.py:3)"


def test_a_dataset_that_waits_is_named_within_the_loader() -> None:
    stack = (Frame("/home/me/data.py", 9, "__getitem__"), *frames("torch/utils/data/_utils/x.py"))
    assert kind_of([Look("S", 1.0, stack)], 2.0, 1) is Kind.DATA
    assert str(place_of(stack)) == "__getitem__ (/home/me/data.py:9)"


def test_a_stopped_process_needs_no_stack() -> None:
    assert kind_of([Look("T", 1.0)], 2.0, 2) is Kind.STOPPED


def test_who_is_elsewhere_each_time_moves_on_and_a_loop_does_not() -> None:
    def look(line: int, outer: int) -> Look:
        path = TRAIN.path
        return Look("R", 0.0, (Frame(path, line, "spin"), Frame(path, outer, "main")))

    assert moves_on([look(1, 5), look(1, 6), look(1, 7)])
    assert not moves_on([look(1, 5), look(2, 5), look(3, 5)])
    assert not moves_on([look(1, 5)])


QUIET = Look("S", 5.0, frames("train.py"), 6.0, 1 << 20, 100)


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({}, False),
        ({"tree_cpu_seconds": 6.1}, False),
        ({"tree_cpu_seconds": 6.4}, True),
        ({"tree_cpu_seconds": 2.0}, True),  # what it had started has ended
        ({"tree_io_bytes": (1 << 20) + 30_000}, False),
        ({"tree_io_bytes": 3 << 20}, True),
        ({"wakeups": 108}, False),
        ({"wakeups": 200}, True),
        ({"state": "T"}, False),
        ({"state": "t"}, True),
        ({"state": "D"}, True),
        ({"state": "Z"}, True),
        ({"sleeps_in": "futex_wait_queue"}, False),
        ({"sleeps_in": "request_wait_answer"}, True),
        ({"sleeps_in": "nfs4_file_read"}, True),
    ],
)
def test_what_the_machine_says_of_movement(change: dict[str, Any], moves: bool) -> None:
    looks = [QUIET, QUIET, replace(QUIET, **change)]
    assert bool(movement(looks, 2.4)) is moves


def test_who_was_seen_once_may_move() -> None:
    assert movement([QUIET], 2.4)
    assert movement([], 2.4)
