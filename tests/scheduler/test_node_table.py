from __future__ import annotations

import numpy as np
import pytest

from penstock.scheduler.errors import InvalidRequestError, OverCommitError
from penstock.scheduler.request import Request
from tests.scheduler.clusters import columns_of, cores, gpus


def test_growing_keeps_what_was_there() -> None:
    columns = columns_of(("a", 8, 2))
    columns.take(columns.row("a"), gpus(1), (1,))
    for index in range(20):
        columns.add(f"n{index}", milli_cpu=1, memory_bytes=0, devices=["gpu"] * 9)
    row = columns.row("a")
    assert columns.device_free[row, :2].tolist() == [1000, 0]
    assert columns.free_milli_cpu[row] == 7000
    assert len(columns) == 21


def test_take_and_give_are_inverse() -> None:
    columns = columns_of(("a", 8, 2))
    share = Request(500, 10, accelerators=1, accelerator_milli=300)
    columns.take(0, share, (1,))
    assert columns.free_accelerator_milli[0] == 1700
    assert columns.whole_devices[0] == 1
    columns.give(0, share, (1,))
    assert columns.free_accelerator_milli[0] == 2000
    assert columns.free_memory_bytes[0] == columns.total_memory_bytes[0]


@pytest.mark.parametrize(
    ("request_", "devices"),
    [(cores(9), ()), (gpus(1), (0, 1)), (gpus(2), (0, 0)), (Request(memory_bytes=1 << 60), ())],
)
def test_nothing_is_taken_where_there_is_not_enough(
    request_: Request, devices: tuple[int, ...]
) -> None:
    columns = columns_of(("a", 8, 2))
    with pytest.raises(OverCommitError):
        columns.take(0, request_, devices)
    assert columns.free_milli_cpu[0] == 8000
    assert columns.free_accelerator_milli[0] == 2000


def test_giving_back_what_was_never_taken_is_refused() -> None:
    columns = columns_of(("a", 8, 2))
    with pytest.raises(OverCommitError):
        columns.give(0, cores(1))


def test_a_node_is_there_once() -> None:
    columns = columns_of(("a", 8, 2))
    with pytest.raises(InvalidRequestError, match="is there already"):
        columns.add("a", milli_cpu=1, memory_bytes=1)
    with pytest.raises(InvalidRequestError, match="at least 0"):
        columns.add("b", milli_cpu=-1, memory_bytes=1)


def test_a_removed_row_is_used_again_and_knows_nothing_of_its_past() -> None:
    columns = columns_of(("a", 8, 2), ("b", 4, 0))
    columns.remove("a")
    assert columns.rows().tolist() == [1]
    row = columns.add("c", milli_cpu=1000, memory_bytes=5)
    assert row == 0
    assert columns.free_accelerator_milli[row] == 0
    assert columns.name_rank()[[1, 0]].tolist() == [0, 1]


def test_the_log_tells_which_rows_changed() -> None:
    columns = columns_of(("a", 8, 2), ("b", 4, 0))
    position = columns.changes.position
    columns.take(1, cores(1))
    columns.take(1, cores(1))
    changed = columns.changes.since(position)
    assert changed is not None
    assert changed.tolist() == [1]


def test_the_log_is_bounded_and_says_when_it_has_forgotten() -> None:
    columns = columns_of(("a", 8, 2))
    position = columns.changes.position
    for _ in range(1000):
        columns.touch(0)
    assert columns.changes.since(position) is None
    recent = columns.changes.since(columns.changes.position - 1)
    assert recent is not None
    assert recent.tolist() == [0]


def test_over_committed_nodes_are_shown_as_they_are() -> None:
    columns = columns_of(("a", 8, 2))
    columns.set_free(0, milli_cpu=-3000, memory_bytes=-1, device_free=[0, 0])
    assert columns.free_milli_cpu[0] == -3000
    assert np.array_equal(columns.whole_devices[:1], [0])
