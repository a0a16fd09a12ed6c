"""Rows by state are what a fresh look at the table says, whatever happened before."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.scheduler.node_table import NodeTable
from penstock.scheduler.placement.node_states import IMPOSSIBLE, NodeStates
from penstock.scheduler.placement.state_index import NOBODY, StateIndex
from penstock.scheduler.request import ANYWHERE, Request

DEVICES = 4


def table(nodes: int) -> NodeTable:
    columns = NodeTable(capacity=2, devices=DEVICES)
    for number in range(nodes):
        columns.add(f"n{number}", milli_cpu=4000, memory_bytes=0, devices=["gpu"] * (number % 3))
    return columns


def agrees(index: StateIndex, states: NodeStates, columns: NodeTable) -> None:
    rank = columns.name_rank()
    first: dict[int, int] = {}
    for row in columns.rows().tolist():
        if columns.schedulable[row]:
            state = states.number(columns, row)
            first[state] = min(first.get(state, NOBODY), int(rank[row]))
    assert index.present == len(first)
    index.grow()
    for state in range(len(states)):
        assert index.first[state] == first.get(state, NOBODY)
        assert (index.absent[state] == 0) == (state in first)
    for state, one in first.items():
        assert states.number(columns, index.row_at(one)) == state


@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=120),
    every=st.integers(1, 9),
)
@settings(deadline=None, max_examples=60)
def test_the_first_row_of_each_state_is_known(steps: list[tuple[int, int]], every: int) -> None:
    columns = table(9)
    states = NodeStates(DEVICES)
    index = StateIndex(columns, states, ANYWHERE, None)
    seen, known = -1, set[int]()
    for number, (what, which) in enumerate(steps):
        names = list(columns)
        row = columns.row(names[which % len(names)]) if names else 0
        match what:
            case 0:
                columns.add(f"new{number}", milli_cpu=4000, memory_bytes=0)
            case 1 if len(names) > 2:
                columns.remove(names[which % len(names)])
            case 2:
                columns.set_schedulable(row, bool(which % 2))
            case _:
                columns.set_free(row, milli_cpu=1000 * (which % 4), memory_bytes=0, device_free=[])
        if number % every == 0 and index.sync():
            agrees(index, states, columns)
            known |= set(index.appeared(seen))
            seen = index.end
            present = {state for state in range(len(states)) if index.absent[state] == 0}
            assert present <= known, "whoever reads the log has heard of every state that is there"


def test_what_a_request_leaves_is_the_state_that_taking_it_leads_to() -> None:
    columns = NodeTable(devices=DEVICES)
    row = columns.add("n", milli_cpu=4000, memory_bytes=0, devices=["a", "b", "a"])
    states = NodeStates(DEVICES)
    here = states.number(columns, row)
    codes = columns.kinds.codes(["a"])
    for request, allowed in (
        (Request(1000), None),
        (Request(0, accelerators=2), None),
        (Request(500, accelerators=2, accelerator_kinds=("a",)), codes),
    ):
        after = states.after(here, request, allowed)
        taken = NodeTable(devices=DEVICES)
        taken.add("n", milli_cpu=4000, memory_bytes=0, devices=["a", "b", "a"])
        slots = {0: (), 2: (0, 2) if allowed else (0, 1)}[request.accelerators]
        taken.take(0, request, slots)
        assert states.number(taken, 0) == after
    assert states.after(here, Request(5000), None) == IMPOSSIBLE
    assert states.after(here, Request(0, accelerators=3), codes) == IMPOSSIBLE
    assert len(states.nodes(0).milli_cpu) == len(states)
