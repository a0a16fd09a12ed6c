from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.scheduler.node_table import NodeTable, Rows
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.fgd import typical_requests
from penstock.scheduler.placement.registry import POLICY_NAMES, Context, make_policy
from penstock.scheduler.placement.stranding import Stranding
from penstock.scheduler.request import Request
from tests.scheduler.clusters import columns_of, cores, gpus

SHAPES = [
    cores(1),
    cores(4),
    gpus(1),
    gpus(2, 3),
    gpus(4),
    Request(500, 0, 1, 300),
    Request(2000, 0, 1, 700),
    Request(1000, 1 << 34, 1),
]


def cluster() -> NodeTable:
    return columns_of(
        ("a", 16, 4), ("b", 8, 2), ("c", 32, 2), ("d", 8, 0), ("e", 0, 1), ("f", 24, 8)
    )


def placer(name: str, columns: NodeTable) -> Placer:
    context = Context(np.random.default_rng(0), typical_requests(SHAPES))
    return Placer(columns, make_policy(name, context))


@given(
    policy=st.sampled_from(POLICY_NAMES),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, len(SHAPES) - 1)), max_size=60),
)
@settings(max_examples=60, deadline=None)
def test_no_node_is_ever_over_committed(policy: str, steps: list[tuple[bool, int]]) -> None:
    columns = cluster()
    place = placer(policy, columns)
    held = []
    for leave, index in steps:
        if leave and held:
            request, placement = held.pop(index % len(held))
            columns.give(placement.row, request, placement.devices)
        else:
            placement = place.place(SHAPES[index])
            if placement is not None:
                held.append((SHAPES[index], placement))
    rows = columns.rows()
    used_cpu, used_gpu = np.zeros(len(rows)), np.zeros(len(rows))
    for request, placement in held:
        used_cpu[placement.row] += request.milli_cpu
        used_gpu[placement.row] += request.total_accelerator_milli
    assert np.array_equal(columns.free_milli_cpu[rows], columns.total_milli_cpu[rows] - used_cpu)
    assert (columns.free_milli_cpu[rows] >= 0).all()
    assert (columns.free_memory_bytes[rows] >= 0).all()
    assert (columns.device_free[rows] >= 0).all()
    free = columns.free_accelerator_milli[rows]
    assert np.array_equal(free, columns.total_accelerator_milli[rows] - used_gpu)


@given(
    policy=st.sampled_from([name for name in POLICY_NAMES if name != "random"]),
    steps=st.lists(st.integers(0, len(SHAPES) - 1), max_size=40),
)
@settings(max_examples=40, deadline=None)
def test_remembered_scores_are_those_of_a_fresh_start(policy: str, steps: list[int]) -> None:
    columns = cluster()
    place = placer(policy, columns)
    for index in steps:
        place.place(SHAPES[index])
        kept = place.scores(SHAPES[0]).copy()
        place.forget()
        assert np.array_equal(kept, place.scores(SHAPES[0]))


def test_what_fits_nowhere_is_not_placed() -> None:
    place = placer("stranding", columns_of(("a", 4, 1)))
    assert place.place(gpus(2)) is None
    assert place.place(cores(5)) is None
    assert place.place(Request(memory_bytes=1 << 50)) is None


def test_an_empty_cluster_places_nothing() -> None:
    assert placer("stranding", columns_of()).place(cores(1)) is None


def test_a_cluster_without_accelerators_still_places_cpu() -> None:
    place = placer("stranding", columns_of(("a", 4, 0), ("b", 4, 0)))
    placements = place.place_all([cores(4), cores(4), cores(1)])
    assert [None if p is None else p.node for p in placements] == ["a", "b", None]


def test_a_cordoned_node_is_left_out_from_now_on() -> None:
    columns = columns_of(("a", 8, 0), ("b", 8, 0))
    place = placer("stranding", columns)
    first = place.look(cores(1))
    columns.set_schedulable(0, False)
    second = place.look(cores(1))
    assert first is not None
    assert second is not None
    assert (first.node, second.node) == ("a", "b")


def test_unknown_kinds_of_accelerators_fit_nowhere() -> None:
    place = placer("stranding", columns_of(("a", 8, 2)))
    assert place.place(Request(accelerators=1, accelerator_kinds=("tpu",))) is None
    assert place.place(Request(accelerators=1, accelerator_kinds=("tpu", "gpu"))) is not None


def test_kinds_are_told_apart_on_one_node() -> None:
    columns = NodeTable()
    columns.add("n", milli_cpu=8000, memory_bytes=0, devices=["x", "x", "y"])
    place = Placer(columns, Stranding())
    assert place.place(Request(accelerators=2, accelerator_kinds=("y",))) is None
    placement = place.place(Request(accelerators=1, accelerator_kinds=("y",)))
    assert placement is not None
    assert placement.devices == (2,)


def test_the_runner_up_is_the_next_best_node() -> None:
    place = placer("most", columns_of(("a", 8, 0), ("b", 16, 0)))
    placement = place.look(cores(8), with_runner_up=True)
    assert placement is not None
    assert (placement.node, placement.runner_up) == ("a", "b")
    assert placement.runner_up_score is not None
    assert placement.runner_up_score < placement.score


def test_the_only_node_has_no_runner_up() -> None:
    place = placer("most", columns_of(("a", 8, 0)))
    placement = place.look(cores(8), with_runner_up=True)
    assert placement is not None
    assert placement.runner_up is None


@dataclass(frozen=True)
class Last:
    epsilon: float = 10.0

    def narrow(self, columns: NodeTable, candidates: Rows) -> Rows:
        return candidates[-1:]


def test_a_preference_chooses_among_nearly_equal_nodes() -> None:
    place = placer("stranding", columns_of(("a", 8, 0), ("b", 8, 0), ("c", 1, 0)))
    placement = place.place(cores(2), Last())
    assert placement is not None
    assert placement.node == "b"


@pytest.mark.parametrize("shapes", [1, 2])
def test_the_number_of_remembered_shapes_is_bounded(shapes: int) -> None:
    place = Placer(cluster(), Stranding(), max_shapes=shapes)
    for request in SHAPES:
        place.look(request)
    assert place.remembered == shapes
