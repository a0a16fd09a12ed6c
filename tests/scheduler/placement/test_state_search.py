"""Looking for the best row by states finds the row that looking at every node finds."""

from __future__ import annotations

from collections.abc import Iterable
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.scheduler.node_table import NodeTable
from penstock.scheduler.objects import Amounts, Node, Pod
from penstock.scheduler.placement import state_search
from penstock.scheduler.placement.engine import Placement, Placer
from penstock.scheduler.placement.feasible import fits
from penstock.scheduler.placement.snapshot import Snapshot
from penstock.scheduler.placement.state_search import StateSearch, UnsureError
from penstock.scheduler.placement.stranding import MIN_REQUESTS_PER_PRICE, Stranding
from penstock.scheduler.request import Constraints, Request, Taint, Toleration

GIB = 1024**3
KINDS = ("fast", "slow")
ZONE = Constraints(node_selector=(("zone", "b"),))
ANY_TAINT = Constraints(tolerations=(Toleration(operator="Exists"),))
SHAPES = (
    Request(0),
    Request(1000, GIB),
    Request(3000, 4 * GIB),
    Request(7000, 30 * GIB),
    Request(2000, GIB, accelerators=1),
    Request(4000, GIB, accelerators=2, accelerator_kinds=("fast",)),
    Request(1000, GIB, accelerators=1, accelerator_kinds=("none-has-it",)),
    Request(6000, GIB, accelerators=4, accelerator_kinds=KINDS),
    Request(500, GIB, accelerators=1, accelerator_milli=250),
    Request(1000, GIB, constraints=ZONE),
    Request(1000, GIB, accelerators=1, constraints=ANY_TAINT),
)


def node(number: int) -> Node:
    """One of a few kinds of nodes, so that many are alike; some are tainted, closed or small."""
    gpus = (0, 4, 8)[number % 3]
    kinds = ((KINDS[number % 2], gpus),) if gpus else ()
    return Node(
        f"n{(number * 7919) % 1000:03d}-{number}",
        Amounts(1000 * (16, 32, 48)[number % 3], (64, 256)[number % 5 != 0] * GIB, kinds),
        labels={"zone": "ab"[number % 4 == 0]},
        taints=(Taint("gpu"),) if number % 6 == 1 else (),
        cordoned=number % 17 == 3,
        most_pods=2 if number % 11 == 5 else None,
    )


def naive(snapshot: Snapshot, policy: Stranding, request: Request) -> tuple[str, float] | None:
    """Every node on its own, by what the policy says of it; ties as they are said to be broken."""
    columns = snapshot.columns
    found: list[tuple[float, int, str]] = []
    for name in columns:
        row = np.array([columns.row(name)])
        allowed = snapshot.eligible(request.constraints, row)[0]
        if allowed and fits(columns, request, row)[0]:
            score = float(policy.score(columns, request, row)[0])
            found.append((score, int(columns.free_accelerator_milli[row[0]]), name))
    if not found:
        return None
    best = max(score for score, _, _ in found)
    close = [(free, name, score) for score, free, name in found if score >= best - policy.epsilon]
    _, name, score = min(close)
    return name, score


class Run:
    """A cluster, and a placer on it that is held against the naive one at each look."""

    def __init__(self, nodes: int) -> None:
        self.snapshot = Snapshot()
        self.count = nodes
        for number in range(nodes):
            self.snapshot.upsert_node(node(number))
        self.policy = Stranding()
        self.placer = Placer(self.snapshot.columns, self.policy, eligible=self.snapshot.eligible)
        self.pods: list[str] = []

    def place(self, request: Request) -> None:
        self.placer.observe(request)
        expected = naive(self.snapshot, self.policy, request)
        found = self.placer.look(request)
        if expected is None:
            assert found is None
            return
        assert found is not None
        node_name, score = expected
        assert found.node == node_name
        assert found.score == pytest.approx(score, abs=1e-9)
        self.hold(found, request)

    def hold(self, found: Placement, request: Request) -> None:
        uid = f"p{len(self.pods)}"
        self.pods.append(uid)
        kinds = self.snapshot.columns.device_kind[found.row, list(found.devices)].tolist()
        held = [(self.snapshot.columns.kinds.name(code), 1) for code in kinds]
        amounts = Amounts(request.milli_cpu, request.memory_bytes)
        for kind, count in held:
            amounts = amounts.plus(Amounts(0, 0, ((kind, count),)))
        self.snapshot.upsert_pod(Pod(uid, found.node, amounts))

    def disturb(self, what: int, which: int) -> None:
        names = list(self.snapshot.nodes)
        match what:
            case 0 if self.pods:
                self.snapshot.remove_pod(self.pods[which % len(self.pods)])
            case 1:
                self.snapshot.upsert_node(node(self.count))
                self.count += 1
            case 2 if len(names) > 1:
                self.snapshot.remove_node(names[which % len(names)])
            case 3:
                self.snapshot.shun(names[which % len(names)], 10.0)
            case 4:
                self.snapshot.expire(100.0)
            case 5:  # somebody over-commits it
                self.snapshot.upsert_pod(
                    Pod(f"big-{which}", names[which % len(names)], Amounts(40_000, GIB))
                )
            case _:
                self.placer.forget()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just(-1), st.integers(0, len(SHAPES) - 1)),
        st.tuples(st.just(-1), st.integers(0, len(SHAPES) - 1)),
        st.tuples(st.just(-1), st.integers(0, len(SHAPES) - 1)),
        st.tuples(st.integers(0, 6), st.integers(0, 100)),
    ),
    max_size=60,
)


@given(nodes=st.integers(1, 70), steps=STEPS)
@settings(deadline=None, max_examples=40)
def test_every_placement_is_that_of_looking_at_every_node(
    nodes: int, steps: list[tuple[int, int]]
) -> None:
    with mock.patch.object(state_search, "ROWS_PER_STATE", 0):  # so few nodes are seldom alike
        run = Run(nodes)
        for what, which in steps:
            if what < 0:
                run.place(SHAPES[which])
            else:
                run.disturb(what, which)


def test_a_long_run_with_new_prices_is_that_of_looking_at_every_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = asked = 0
    find = StateSearch.find

    def counted(self: StateSearch, request: Request) -> tuple[int, float] | None:
        nonlocal told, asked
        asked += 1
        found = find(self, request)
        told += 1
        return found

    monkeypatch.setattr(StateSearch, "find", counted)
    monkeypatch.setattr(state_search, "ROWS_PER_STATE", 0)
    run = Run(90)
    generator = np.random.default_rng(3)
    for number in range(3 * MIN_REQUESTS_PER_PRICE):
        run.place(SHAPES[int(generator.integers(len(SHAPES)))])
        if number % 9 == 0:
            run.disturb(0, number)
    assert told > asked / 4, "the states must be what is looked at, or nothing is tested"


def columns_of(count: int, memory: int = 64) -> NodeTable:
    columns = NodeTable()
    for number in range(count):
        columns.add(
            f"n{number:02d}",
            milli_cpu=8000,
            memory_bytes=memory * GIB,
            devices=["gpu"] * 2,
        )
    return columns


def search(columns: NodeTable) -> StateSearch:
    return StateSearch(columns, Stranding(), None, 16)


def asked(found: StateSearch, requests: Iterable[Request]) -> list[str]:
    said = []
    for request in requests:
        try:
            said.append("none" if found.find(request) is None else "row")
        except UnsureError:
            said.append("unsure")
    return said


def test_where_a_row_that_counts_lacks_memory_the_rows_are_looked_at_and_not_the_states() -> None:
    columns = columns_of(12)
    columns.set_free(0, milli_cpu=8000, memory_bytes=GIB, device_free=[1000, 1000])
    found = search(columns)
    assert asked(found, [Request(1000, GIB)]) == ["row"]
    assert asked(found, [Request(1000, 2 * GIB)] * 10) == ["unsure"] * 10, "for a while"
    assert Placer(columns, Stranding()).look(Request(1000, 2 * GIB)) is not None
    assert asked(found, [Request(9000)]) == ["none"]


def test_where_no_nodes_are_alike_rows_are_looked_at() -> None:
    columns = columns_of(9)
    for row in range(9):
        columns.set_free(row, milli_cpu=8000 - row, memory_bytes=GIB, device_free=[1000, 1000])
    assert asked(search(columns), [Request(1000)] * 3) == ["unsure"] * 3


def test_a_shape_learns_so_many_states_as_it_is_looked_at_and_no_more() -> None:
    columns = columns_of(3 * 400)
    for row in range(3 * 400):
        columns.set_free(
            row, milli_cpu=8000 - row // 3, memory_bytes=64 * GIB, device_free=[1000, 1000]
        )
    found = search(columns)
    said = asked(found, [Request(1000)] * 12)
    assert said[0] == "unsure"
    assert said[-1] == "row"
    assert asked(found, [Request(2000)]) == ["unsure"], "another shape begins anew"


def test_rows_of_seldom_constraints_are_not_put_in_order() -> None:
    columns = columns_of(300)
    found = search(columns)
    wanted = Request(1000, constraints=ZONE)
    said = asked(found, [wanted] * 20)
    assert said[0] == "unsure"
    assert said[-1] == "row"
