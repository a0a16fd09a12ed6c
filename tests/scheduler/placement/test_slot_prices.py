from __future__ import annotations

import numpy as np

from penstock.scheduler.node_table import NodeTable
from penstock.scheduler.placement.demand import Demand, Shape
from penstock.scheduler.placement.slot_prices import WORTH, Slots, set_prices
from penstock.scheduler.request import Request
from tests.scheduler.clusters import columns_of, cores, gpus


def asked(*requests: Request, times: int = 10) -> Demand:
    demand = Demand()
    for request in requests * times:
        demand.observe(request)
    return demand


def mixed() -> NodeTable:
    """Eight nodes of eight plain devices, and one of eight rare ones."""
    columns = NodeTable(capacity=9, devices=8)
    for index in range(9):
        kind = "rare" if index == 8 else "plain"
        columns.add(f"n{index}", milli_cpu=64_000, memory_bytes=0, devices=[kind] * 8)
    return columns


def test_a_place_that_will_be_needed_is_worth_more_than_one_in_plenty() -> None:
    columns = columns_of(("a", 64, 8), *((f"b{index}", 8, 1) for index in range(8)))
    prices = set_prices(columns, asked(gpus(8, 8), gpus(1, 1)))
    assert prices is not None
    shapes = (shape.accelerators for shape in prices.slots.shapes)
    by_count = dict(zip(shapes, prices.prices.tolist(), strict=True))
    assert by_count[8] == WORTH * 8000
    assert by_count.get(1, 0.0) < 0.01 * by_count[8]


def test_slots_are_limited_by_cpu_devices_and_gangs() -> None:
    shapes = [Shape(3000, 3, 1000), Shape(30_000, 1, 1000), Shape(1000, 1, 400)]
    slots = Slots(columns_of(("a", 64, 8)), shapes)
    free, kind = np.array([[1000] * 7 + [500]]), np.zeros((1, 8), dtype=np.int64)
    assert slots.count(np.array([64_000]), free, kind).tolist() == [[2, 2, 15]]
    assert slots.count(np.array([-1]), free, kind).tolist() == [[0, 0, 0]]


def test_slots_are_of_the_kinds_that_will_do() -> None:
    columns = mixed()
    shapes = [Shape(1000, 1, 1000, ("rare",)), Shape(1000, 1, 1000), Shape(1, 1, 500, ("gone",))]
    rows = columns.rows()
    slots = Slots(columns, shapes).count(
        columns.free_milli_cpu[rows], columns.device_free[rows], columns.device_kind[rows]
    )
    assert slots[0].tolist() == [0, 8, 0]
    assert slots[8].tolist() == [8, 8, 0]


def test_a_kind_that_many_shapes_want_together_has_a_price() -> None:
    """Each of the eight shapes wants an eighth of the rare devices; together they want all."""
    columns = mixed()
    demand = asked(
        *(Request(1000 * size, 0, 1, accelerator_kinds=("rare",)) for size in range(1, 9)),
        *[Request(2000, 0, 8)] * 8,
    )
    prices = set_prices(columns, demand)
    assert prices is not None
    free = np.full((2, 8), 1000)
    kinds = columns.device_kind[[columns.row("n0"), columns.row("n8")]]
    plain, rare = prices.worth(np.array([64_000, 64_000]), free, kinds)
    assert rare > plain + WORTH * 7000


def test_who_can_use_other_kinds_too_does_not_make_a_kind_scarce() -> None:
    columns = mixed()
    either = Request(1000, 0, 1, accelerator_kinds=("rare", "plain"))
    prices = set_prices(columns, asked(either, *[Request(2000, 0, 1)] * 9))
    assert prices is not None
    free = np.full((2, 8), 1000)
    kinds = columns.device_kind[[columns.row("n0"), columns.row("n8")]]
    plain, rare = prices.worth(np.array([64_000, 64_000]), free, kinds)
    assert rare == plain


def test_without_demand_or_without_nodes_there_are_no_prices() -> None:
    one = columns_of(("a", 8, 1))
    assert set_prices(one, Demand()) is None
    assert set_prices(one, asked(cores(3))) is None
    assert set_prices(columns_of(), asked(cores(3), gpus(1))) is None
    assert set_prices(columns_of(("a", 8, 0)), asked(gpus(1))) is None
