from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.fgd import ExpectedFragmentation, Fgd, typical_requests
from penstock.scheduler.request import Request
from tests.scheduler.clusters import columns_of, cores, gpus

TYPICAL = {
    gpus(1, 4): 0.4,
    gpus(1, 8, milli=500): 0.3,
    gpus(2, 6): 0.2,
    cores(4): 0.1,
}


def by_definition(free_cpu: int, free: list[int]) -> float:
    """Expected fragmentation, case by case as Weng et al. define it (ATC 2023, section 4)."""
    total = 0.0
    for request, weight in TYPICAL.items():
        idle = sum(free)
        fitting = [milli for milli in free if milli >= request.accelerator_milli]
        served = (
            request.accelerators > 0
            and len(fitting) >= request.accelerators
            and free_cpu >= request.milli_cpu
        )
        total += weight * (idle - sum(fitting) if served else idle)
    return total


def test_expected_fragmentation_is_what_the_definition_says() -> None:
    columns = columns_of(("a", 16, 2))
    expected = ExpectedFragmentation(TYPICAL)
    row = np.array([0])
    for cpu, first, second in product((0, 4000, 8000, 16000), (0, 300, 500, 1000), (0, 400, 1000)):
        free = np.array([[first, second]])
        value = expected.of(columns, row, np.array([cpu]), free)[0]
        assert value == pytest.approx(by_definition(cpu, [first, second]))


def test_the_score_is_the_quantised_decrease() -> None:
    columns = columns_of(("a", 16, 2))
    request = gpus(1, 4)
    score = Placer(columns, Fgd(TYPICAL)).scores(request)[0]
    decrease = by_definition(16000, [1000, 1000]) - by_definition(12000, [0, 1000])
    assert score == math.floor(100 / (1 + math.exp(-decrease / 1000)))


def test_a_request_that_changes_nothing_scores_fifty() -> None:
    placer = Placer(columns_of(("a", 64, 0)), Fgd(TYPICAL))
    assert placer.scores(cores(1))[0] == 50


def test_only_nodes_of_the_right_kind_count_as_usable() -> None:
    special = Request(1000, 0, 1, accelerator_kinds=("other",))
    columns = columns_of(("a", 16, 1))
    columns.kinds.code("other")
    expected = ExpectedFragmentation({special: 1.0})
    row = np.array([0])
    assert expected.of(columns, row, np.array([9000]), np.array([[1000, 0]]))[0] == 1000
    usable = ExpectedFragmentation({Request(1000, 0, 1, accelerator_kinds=("gpu",)): 1.0})
    assert usable.of(columns, row, np.array([9000]), np.array([[1000, 0]]))[0] == 0


def test_typical_requests_cover_the_popularity_and_ignore_memory() -> None:
    pods = [Request(1000, 5, 1), Request(1000, 7, 1)] * 45 + [cores(2)] * 6 + [cores(3)] * 4
    typical = typical_requests(pods, popularity=0.95)
    assert list(typical.values()) == [90 / 96, 6 / 96]
    assert sum(typical.values()) == pytest.approx(1)


def test_typical_requests_do_not_depend_on_the_order_of_the_pods() -> None:
    pods = [cores(1), cores(2), cores(3), gpus(1), gpus(2)]
    assert typical_requests(pods, 0.5) == typical_requests(pods[::-1], 0.5)


def test_shares_are_packed_onto_a_device_that_is_in_use() -> None:
    columns = columns_of(("a", 64, 2))
    columns.take(0, gpus(1, milli=500), (1,))
    placement = Placer(columns, Fgd(TYPICAL)).place(gpus(1, milli=500))
    assert placement is not None
    assert placement.devices == (1,)
