from __future__ import annotations

from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.locality import MANY_BYTES_PER_SECOND, Locality, NodeTraffic
from penstock.scheduler.placement.stranding import Stranding
from tests.scheduler.clusters import columns_of, cores, gpus

FEW = MANY_BYTES_PER_SECOND / 10


def place(locality: Locality, *nodes: tuple[str, int, int]) -> str:
    columns = columns_of(*nodes)
    for name, _, accelerators in nodes:  # every accelerator in use, so that CPU strands alike
        if accelerators:
            row = columns.row(name)
            columns.take(row, gpus(accelerators, 0), tuple(range(accelerators)))
    placement = Placer(columns, Stranding()).place(cores(1), locality)
    assert placement is not None
    return placement.node


def test_a_job_that_moves_much_gets_a_worker_on_its_own_node() -> None:
    locality = Locality(frozenset({"b"}), MANY_BYTES_PER_SECOND)
    assert place(locality, ("a", 64, 2), ("b", 64, 2), ("c", 64, 2)) == "b"


def test_a_job_that_moves_little_takes_a_node_without_accelerators() -> None:
    locality = Locality(frozenset({"a"}), FEW)
    assert place(locality, ("a", 640, 2), ("b", 640, 0)) == "b"


def test_nearness_does_not_outweigh_fragmentation() -> None:
    columns = columns_of(("a", 8, 4), ("b", 8, 0))
    locality = Locality(frozenset({"a"}), MANY_BYTES_PER_SECOND)
    placement = Placer(columns, Stranding()).place(cores(4), locality)
    assert placement is not None
    assert placement.node == "b"


def test_among_equals_the_least_traffic_wins_field_by_field() -> None:
    traffic = {
        "a": NodeTraffic(1, 0, 0.0),
        "b": NodeTraffic(0, 2, 0.0),
        "c": NodeTraffic(0, 1, 9.0),
        "d": NodeTraffic(0, 1, 5.0),
    }
    locality = Locality(frozenset(), MANY_BYTES_PER_SECOND, traffic)
    assert place(locality, *((name, 64, 2) for name in "abcd")) == "d"
