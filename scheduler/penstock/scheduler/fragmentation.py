"""Multi-resource fragmentation of nodes: what of one resource strands for lack of the other.

GoldMiner (SIGMOD 2023, section 2) measures a node by F = free CPU share - free accelerator share,
signed: below zero, accelerators will strand because the CPU runs out first; above, CPU will. The
paper only analyses with it; making it an objective is ours (`placement.stranding`).

Edge cases, decided here: shares are clipped to 0..1, so that an over-committed node counts as full;
a node without CPU has no free CPU; a node without accelerators has F = its free CPU share and
strands nothing, since nothing on it waits for an accelerator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.scheduler.node_table import Floats, Integers, NodeTable, Rows
from penstock.scheduler.request import WHOLE_DEVICE_MILLI


def shares(free: Integers, total: Integers) -> Floats:
    """free / total, clipped to 0..1; 0 where there is nothing in total."""
    part = free / np.maximum(total, 1)  # free is never above zero where the total is zero
    np.maximum(part, 0.0, out=part)
    return np.minimum(part, 1.0, out=part)


def fragmentation(columns: NodeTable, rows: Rows) -> Floats:
    """F of each row, -1 to 1."""
    cpu = shares(columns.free_milli_cpu[rows], columns.total_milli_cpu[rows])
    total = columns.total_accelerator_milli[rows]
    return cpu - shares(columns.free_accelerator_milli[rows], total)


def stranded_accelerators(columns: NodeTable, rows: Rows) -> Floats:
    """Thousandths of accelerators that will strand for lack of CPU: max(0, -F) x total."""
    return np.maximum(0.0, -fragmentation(columns, rows)) * columns.total_accelerator_milli[rows]


def stranded_cpu(columns: NodeTable, rows: Rows) -> Floats:
    """Milli-cores of each row that will strand for lack of accelerators; none without any."""
    stranded = np.maximum(0.0, fragmentation(columns, rows)) * columns.total_milli_cpu[rows]
    return np.where(columns.total_accelerator_milli[rows] > 0, stranded, 0.0)


@dataclass(frozen=True, slots=True)
class ClusterFragmentation:
    """Totals over a cluster, in whole accelerators and cores."""

    stranded_accelerators: float
    stranded_cpu_cores: float


def of_cluster(columns: NodeTable) -> ClusterFragmentation:
    """What of a cluster will strand, summed over its nodes."""
    rows = columns.rows()
    return ClusterFragmentation(
        float(stranded_accelerators(columns, rows).sum()) / WHOLE_DEVICE_MILLI,
        float(stranded_cpu(columns, rows).sum()) / 1000,
    )
