from __future__ import annotations

import numpy as np
import pytest

from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.stranding import Stranding
from penstock.scheduler.request import Request
from tests.scheduler.clusters import columns_of, cores, gpus


def test_a_data_worker_goes_where_cpu_would_strand() -> None:
    columns = columns_of(("a", 8, 2), ("b", 8, 2))
    columns.take(1, gpus(2), (0, 1))
    placement = Placer(columns, Stranding()).place(cores(4))
    assert placement is not None
    assert placement.node == "b"


def test_a_data_worker_prefers_a_cpu_only_node_to_stranding_accelerators() -> None:
    placement = Placer(columns_of(("a", 8, 2), ("b", 8, 0)), Stranding()).place(cores(4))
    assert placement is not None
    assert placement.node == "b"


def test_the_score_is_the_decrease_of_stranded_accelerators() -> None:
    placer = Placer(columns_of(("a", 8, 4)), Stranding())
    # Half of the CPU gone, all accelerators free: half of the four strand.
    assert placer.scores(cores(4))[0] == pytest.approx(-2.0)
    # Half of the accelerators for an eighth of the CPU: CPU for 1.5 strands, at a tenth.
    assert placer.scores(Request(1000, 0, 2))[0] == pytest.approx(-0.15)


def test_equal_nodes_are_told_apart_by_the_tightest_fit_then_by_name() -> None:
    columns = columns_of(("c", 16, 4), ("b", 8, 2), ("a", 8, 2))
    placement = Placer(columns, Stranding()).place(gpus(1, 4))
    assert placement is not None
    assert placement.node == "a"


def test_small_jobs_leave_scarce_places_to_the_jobs_that_need_them() -> None:
    """Two nodes could take the large job; the small ones fit them best, and still go elsewhere."""
    nodes = [(f"large-{index}", 32, 2) for index in range(2)]
    nodes += [(f"small-{index}", 20, 2) for index in range(40)]
    columns = columns_of(*nodes)
    large, small = Request(30_000, 0, 2), Request(16_000, 0, 1)
    policy = Stranding()
    for _ in range(64):
        policy.observe(columns, large)
        policy.observe(columns, small)
    scores = Placer(columns, policy).scores(small)
    without = Placer(columns, Stranding()).scores(small)
    rows = np.array([columns.row("large-0"), columns.row("small-0")])
    assert without[rows[0]] > without[rows[1]]
    assert scores[rows[0]] < scores[rows[1]]


def test_a_share_goes_to_the_device_that_fits_tightest() -> None:
    columns = columns_of(("a", 16, 2))
    columns.take(0, gpus(1, milli=400), (1,))
    placement = Placer(columns, Stranding()).place(gpus(1, milli=500))
    assert placement is not None
    assert placement.devices == (1,)


def test_a_run_can_be_repeated() -> None:
    def run() -> list[str]:
        columns = columns_of(*((f"n{index}", 16, 4) for index in range(8)))
        stream = [gpus(1, 3), cores(2), gpus(2, 6), gpus(1, 8, milli=500)] * 10
        placements = Placer(columns, Stranding()).place_all(stream)
        return [p.node for p in placements if p is not None]

    assert run() == run()
