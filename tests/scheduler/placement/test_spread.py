from __future__ import annotations

from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.spread import Spread
from penstock.scheduler.request import Request
from tests.scheduler.clusters import GIBIBYTE, columns_of


def test_pods_spread_over_empty_nodes() -> None:
    placer = Placer(columns_of(("a", 8, 0), ("b", 8, 0)), Spread())
    placements = placer.place_all([Request(2000, 8 * GIBIBYTE)] * 4)
    assert [p.node for p in placements if p is not None] == ["a", "b", "a", "b"]


def test_cpu_and_memory_are_kept_in_balance() -> None:
    columns = columns_of(("a", 8, 0), ("b", 8, 0))
    columns.take(0, Request(4000, 0))
    columns.take(1, Request(0, 32 * GIBIBYTE))
    placement = Placer(columns, Spread()).place(Request(2000, 0))
    assert placement is not None
    assert placement.node == "b"
