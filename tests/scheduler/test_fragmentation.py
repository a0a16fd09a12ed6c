from __future__ import annotations

import pytest

from penstock.scheduler.fragmentation import (
    fragmentation,
    of_cluster,
    stranded_accelerators,
    stranded_cpu,
)
from tests.scheduler.clusters import columns_of, cores, gpus


def test_the_example_of_the_paper_has_its_sign() -> None:
    """GoldMiner, section 2: a quarter of the CPU and half of the GPUs left: a quarter strands."""
    columns = columns_of(("a", 8, 4))
    columns.take(0, cores(4))
    columns.take(0, gpus(2), (0, 1))
    rows = columns.rows()
    assert fragmentation(columns, rows).tolist() == [-0.25]
    assert stranded_accelerators(columns, rows).tolist() == [1000]
    assert stranded_cpu(columns, rows).tolist() == [0]


def test_cpu_strands_where_accelerators_run_out() -> None:
    columns = columns_of(("a", 8, 2))
    columns.take(0, gpus(2), (0, 1))
    assert fragmentation(columns, columns.rows()).tolist() == [0.75]
    assert of_cluster(columns).stranded_cpu_cores == pytest.approx(6)
    assert of_cluster(columns).stranded_accelerators == 0


def test_a_node_without_accelerators_strands_nothing() -> None:
    columns = columns_of(("a", 8, 0))
    columns.take(0, cores(2))
    assert fragmentation(columns, columns.rows()).tolist() == [0.75]
    assert of_cluster(columns).stranded_cpu_cores == 0


def test_an_over_committed_node_counts_as_full() -> None:
    columns = columns_of(("a", 8, 2))
    columns.set_free(0, milli_cpu=-5000, memory_bytes=0, device_free=[1000, 1000])
    assert fragmentation(columns, columns.rows()).tolist() == [-1]


def test_a_node_without_anything_is_no_division_by_zero() -> None:
    columns = columns_of(("a", 0, 0), ("b", 0, 1))
    assert fragmentation(columns, columns.rows()).tolist() == [0, -1]


def test_an_empty_cluster_strands_nothing() -> None:
    columns = columns_of()
    assert of_cluster(columns).stranded_accelerators == 0
