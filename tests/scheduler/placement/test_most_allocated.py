from __future__ import annotations

from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.most_allocated import Most
from penstock.scheduler.request import Request
from tests.scheduler.clusters import GIBIBYTE, columns_of


def test_pods_fill_one_node_before_the_next() -> None:
    placer = Placer(columns_of(("a", 8, 0), ("b", 8, 0)), Most())
    placements = placer.place_all([Request(4000, 8 * GIBIBYTE)] * 4)
    assert [p.node for p in placements if p is not None] == ["a", "a", "b", "b"]


def test_a_node_without_memory_counts_its_memory_as_used() -> None:
    columns = columns_of(("a", 8, 0), memory_gib=0)
    placement = Placer(columns, Most()).place(Request(4000))
    assert placement is not None
    assert placement.score == 75
