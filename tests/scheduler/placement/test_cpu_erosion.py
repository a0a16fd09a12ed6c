from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler.placement.cpu_erosion import MOST_PRESSURE, erosion, remainder
from penstock.scheduler.placement.demand import Demand
from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.stranding import Stranding
from tests.scheduler.clusters import columns_of, cores, gpus

NEEDED = np.array([8000], dtype=np.int64)


def test_what_is_left_is_what_no_request_fits_into() -> None:
    left = remainder(9, np.array([3, 5]), np.array([0.5, 0.5]))
    assert left[2].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert left[4, 1] == 1  # only the 3 fits
    assert left[5].tolist() == [0.5, 0, 0.5, 0, 0, 0, 0, 0, 0]  # 5, or 3
    assert left[8, 0] == pytest.approx(0.75)  # 5 and 3; 3 and 5; or 3, 3 and 2 left
    assert left[8, 2] == pytest.approx(0.25)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 1)), max_size=6),
    st.integers(1, 60),
)
def test_something_is_left_of_every_level_and_less_than_the_least_request(
    asked: list[tuple[int, float]], levels: int
) -> None:
    sizes = np.array([size for size, _ in asked], dtype=np.int64)
    left = remainder(levels, sizes, np.array([weight for _, weight in asked]))
    assert left.sum(axis=1) == pytest.approx(1.0)
    assert not left[:, min(sizes, default=levels) :].any()


def test_there_is_no_pressure_while_there_is_cpu_for_all() -> None:
    columns = columns_of(("a", 64, 8))
    demand = Demand()
    demand.observe(gpus(1, 4))
    assert erosion(columns, demand, 8, NEEDED, 8) is None
    demand.observe(cores(4))  # eight of each take half of the cores, and the other half
    assert erosion(columns, demand, 16, NEEDED, 8) is None
    for _ in range(10):
        demand.observe(cores(4))
    eaten = erosion(columns, demand, 100, NEEDED, 8)
    assert eaten is not None
    assert 0.5 < eaten.pressure <= MOST_PRESSURE


def test_only_slots_that_nobody_eats_can_be_counted_on() -> None:
    """Requests of 48 leave 16 of 64 cores, where 2 of 8 slots remain, and all of 40, where 5 do."""
    columns = columns_of(("a", 64, 8))
    demand = Demand()
    demand.observe(gpus(1, 8))
    for _ in range(1000):
        demand.observe(cores(48))
    eaten = erosion(columns, demand, 1000, NEEDED, 8)
    assert eaten is not None
    assert eaten.pressure == MOST_PRESSURE
    slots = eaten.remaining(np.array([64_000, 40_000, -5]), np.array([[8.0], [5.0], [0.0]]))
    assert slots[:, 0] == pytest.approx([0.1 * 8 + 0.9 * 2, 5, 0])


def test_on_a_cpu_bound_cluster_accelerators_are_used_where_they_would_be_lost() -> None:
    """16 free cores are safe from requests of 60; of 64, four would be left, but 56 are safe."""
    columns = columns_of(("safe", 64, 1), ("at-risk", 64, 8))
    columns.take(0, cores(48))
    calm, pressed = Placer(columns, Stranding()), Placer(columns, Stranding())
    for _ in range(100):
        calm.observe(gpus(1, 8))
        for request in (gpus(1, 8), cores(60), cores(60), cores(60)):
            pressed.observe(request)
    chosen = [placer.look(gpus(1, 8)) for placer in (calm, pressed)]
    assert [place.node for place in chosen if place is not None] == ["safe", "at-risk"]
