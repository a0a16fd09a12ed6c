from __future__ import annotations

import numpy as np

from penstock.scheduler.placement.best_fit import BestFit
from penstock.scheduler.request import Request
from penstock.sim.cluster.arrivals import arrivals, fill
from penstock.sim.traces.shapes import NodeShape

NODES = [NodeShape("a", 8000, 0, 4), NodeShape("b", 8000, 0, 4)]


def test_pods_are_redrawn_until_demand_exceeds_the_target() -> None:
    pods = [Request(1000, 0, 1), Request(1000)]
    stream = arrivals(pods, 8000, 1.3, np.random.default_rng(0))
    asked = sum(pod.total_accelerator_milli for pod in stream)
    assert asked == 11_000  # the first whole accelerator at or over 10.4


def test_pods_are_cut_where_they_ask_for_more() -> None:
    pods = [Request(1000, 0, 1)] * 100
    assert len(arrivals(pods, 8000, 1.3, np.random.default_rng(0))) == 11


def test_a_workload_without_accelerators_comes_once() -> None:
    pods = [Request(1000), Request(2000)]
    stream = arrivals(pods, 8000, 1.3, np.random.default_rng(0))
    assert sorted(pod.milli_cpu for pod in stream) == [1000, 2000]


def test_a_pod_that_fits_nowhere_is_skipped_and_counts_as_arrived() -> None:
    stream = [Request(1000, 0, 4), Request(9000, 0, 4), Request(1000, 0, 4), Request(1000, 0, 1)]
    filling = fill(NODES, stream, BestFit())
    assert filling.skipped == 2
    assert filling.at(50) == 50
    assert filling.at(100) == 50
    assert filling.at(150) == 100


def test_the_allocation_at_a_percent_is_the_mean_over_what_arrived_there() -> None:
    stream = [Request(1000, 0, 4), Request(1000), Request(1000, 0, 4)]
    filling = fill(NODES, stream, BestFit())
    assert filling.at(50) == 50
    assert filling.at(99) == 100
    assert fill(NODES, [], BestFit()).at(80) == 0
