import numpy as np

from penstock.scheduler.placement.demand import WORTH, Demand, slot_prices
from penstock.scheduler.request import Request
from tests.scheduler.clusters import columns_of, cores, gpus


def test_a_place_that_will_be_needed_is_worth_more_than_one_in_plenty() -> None:
    columns = columns_of(("a", 64, 8), *((f"b{index}", 8, 1) for index in range(8)))
    demand = Demand()
    for _ in range(10):
        demand.observe(gpus(8, 8))
        demand.observe(gpus(1, 1))
    prices = slot_prices(columns, demand)
    by_count = dict(zip(prices.accelerators.tolist(), prices.prices.tolist(), strict=True))
    assert by_count[8] == WORTH * 8000
    assert by_count.get(1, 0.0) < 0.01 * by_count[8]


def test_slots_are_limited_by_cpu_devices_and_gangs() -> None:
    columns = columns_of(("a", 64, 8))
    demand = Demand()
    for request in (gpus(3, 1), gpus(1, 30), gpus(1, 1, milli=400)):
        demand.observe(request)
    prices = slot_prices(columns, demand)
    slots = prices.slots(np.array([64_000]), np.array([[1000] * 7 + [500]]))
    found = {
        (count, milli): slot
        for count, milli, slot in zip(
            prices.accelerators.tolist(), prices.accelerator_milli.tolist(), slots[0], strict=True
        )
    }
    assert found[3, 1000] == 2
    assert found[1, 1000] == 2
    assert found.get((1, 400), 15) == 15


def test_without_demand_or_without_nodes_there_are_no_prices() -> None:
    assert len(slot_prices(columns_of(("a", 8, 1)), Demand())) == 0
    demand = Demand()
    demand.observe(cores(3))
    assert len(slot_prices(columns_of(("a", 8, 1)), demand)) == 0
    demand.observe(gpus(1))
    assert len(slot_prices(columns_of(), demand)) == 0


def test_the_window_forgets_what_is_no_longer_asked_for() -> None:
    demand = Demand(window=16)
    demand.observe(gpus(8))
    for _ in range(100):
        demand.observe(Request(1000, 0, 1))
    assert demand.requests < 16
    assert [shape.accelerators for shape in demand.shares()] == [1]
