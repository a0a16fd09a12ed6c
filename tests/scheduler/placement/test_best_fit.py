from __future__ import annotations

from penstock.scheduler.placement.best_fit import BestFit
from penstock.scheduler.placement.engine import Placer
from tests.scheduler.clusters import columns_of, gpus


def test_the_node_with_least_left_over_wins() -> None:
    placement = Placer(columns_of(("a", 96, 8), ("b", 30, 4), ("c", 64, 2)), BestFit()).place(
        gpus(2, 8)
    )
    assert placement is not None
    assert placement.node == "b"


def test_whole_percents_tie_and_the_first_name_wins() -> None:
    columns = columns_of(("b", 64, 4), ("a", 65, 4))
    placement = Placer(columns, BestFit()).place(gpus(1))
    assert placement is not None
    assert placement.node == "a"


def test_a_share_goes_to_the_tightest_device() -> None:
    columns = columns_of(("a", 64, 3))
    columns.take(0, gpus(1, milli=400), (1,))
    columns.take(0, gpus(1, milli=600), (2,))
    placement = Placer(columns, BestFit()).place(gpus(1, milli=300))
    assert placement is not None
    assert placement.devices == (2,)
