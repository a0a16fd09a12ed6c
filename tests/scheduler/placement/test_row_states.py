"""Rows of one state are alike, whatever was taken, given back, added or removed before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler.node_table import NodeTable
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.stranding import Stranding
from penstock.scheduler.request import Request
from penstock.scheduler.row_states import RowStates

REQUESTS = (
    Request(1000),
    Request(3000),
    Request(2000, accelerators=1),
    Request(1000, accelerators=2),
    Request(500, accelerators=1, accelerator_milli=250),
)


def table(nodes: int) -> NodeTable:
    columns = NodeTable(capacity=4, devices=1)
    for node in range(nodes):
        columns.add(
            f"node-{node}",
            milli_cpu=8000 + 4000 * (node % 2),
            memory_bytes=0,
            devices=("gpu",) * (node % 3),
        )
    return columns


def seen(columns: NodeTable, row: int) -> tuple[object, ...]:
    return (
        columns.total_milli_cpu[row],
        columns.free_milli_cpu[row],
        columns.device_free[row].tobytes(),
        columns.device_kind[row].tobytes(),
    )


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(REQUESTS)), max_size=40))
def test_rows_have_one_number_exactly_where_they_are_alike(
    steps: list[tuple[int, Request]],
) -> None:
    columns = table(6)
    states = RowStates(columns)
    placer = Placer(columns, Stranding())
    for number, (step, request) in enumerate(steps):
        if step == 0:
            columns.add(f"new-{number}", milli_cpu=8000, memory_bytes=0)
        elif step == 1 and len(columns) > 1:
            columns.remove(next(iter(columns)))
        else:
            placer.place(request)
        rows = columns.rows()
        found = list(zip(states.of_rows(rows).tolist(), rows.tolist(), strict=True))
        alike = {state: seen(columns, row) for state, row in found}
        assert all(alike[state] == seen(columns, row) for state, row in found)
        assert len(set(alike.values())) == len(alike)


def test_states_that_no_row_has_are_forgotten_and_scores_stay_right() -> None:
    columns = table(6)
    placer = Placer(columns, Stranding())
    for cpu in range(6000):
        columns.set_free(0, milli_cpu=cpu, memory_bytes=0, device_free=[0])
        placer.look(REQUESTS[0])
        assert len(placer._states) <= 4096 + 4 * columns.capacity + columns.capacity
    fresh = Placer(columns, Stranding()).scores(REQUESTS[0])
    assert np.array_equal(placer.scores(REQUESTS[0]), fresh)
