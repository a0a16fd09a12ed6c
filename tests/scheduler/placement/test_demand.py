from __future__ import annotations

from penstock.scheduler.placement.demand import Demand
from penstock.scheduler.request import Request
from tests.scheduler.clusters import cores, gpus


def test_the_window_forgets_what_is_no_longer_asked_for() -> None:
    demand = Demand(window=16)
    demand.observe(gpus(8))
    demand.observe(cores(7))
    for _ in range(100):
        demand.observe(Request(1000, 0, 1))
    assert demand.requests < 16
    assert [shape.accelerators for shape in demand.shares()] == [1]
    assert not demand.bare_shares()


def test_shares_are_parts_of_all_requests_whatever_they_ask_for() -> None:
    demand = Demand()
    for request in (gpus(2, 8), gpus(2, 8), cores(4), Request()):
        demand.observe(request)
    assert list(demand.shares().values()) == [0.5]
    assert demand.bare_shares() == {4000: 0.25}
    assert demand.mean_milli() == 1000
    assert demand.mean_milli_cpu() == 8000


def test_only_the_shapes_that_ask_for_most_are_told_apart() -> None:
    demand = Demand()
    for count in (1, 2, 3):
        demand.observe(gpus(count))
        demand.observe(cores(count))
    assert [shape.accelerators for shape in demand.shares(2)] == [3, 2]
    assert sorted(demand.bare_shares(2)) == [2000, 3000]


def test_kinds_that_will_do_are_kept_apart() -> None:
    demand = Demand()
    demand.observe(Request(1000, 0, 1, accelerator_kinds=("a",)))
    demand.observe(Request(1000, 0, 1, accelerator_kinds=("a", "b")))
    demand.observe(Request(1000, 0, 2))
    demand.observe(cores(1))
    assert demand.milli_by_kinds() == {("a",): 250, ("a", "b"): 250, (): 500}
    assert len(demand.shares()) == 3


def test_nothing_asked_for_is_no_demand() -> None:
    assert Demand().mean_milli() == 0
    assert Demand().mean_milli_cpu() == 0
    assert not Demand().milli_by_kinds()
