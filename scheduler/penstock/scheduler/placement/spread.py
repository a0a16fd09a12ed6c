"""Spread: the default scoring of kube-scheduler, LeastAllocated and BalancedAllocation.

Both score 0 to 100 in whole points with equal weight, over CPU and memory, as the upstream plugins
NodeResourcesFit and NodeResourcesBalancedAllocation do with their default arguments.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penstock.scheduler.node_table import Floats, NodeTable, Rows
from penstock.scheduler.placement.policy import PlacementPolicy
from penstock.scheduler.request import Request


class Spread(PlacementPolicy):
    """The emptiest node, with CPU and memory used evenly."""

    name: ClassVar[str] = "spread"
    epsilon = 0.5

    def score(self, columns: NodeTable, request: Request, rows: Rows) -> Floats:
        """LeastAllocated plus BalancedAllocation, 0 to 200."""
        cpu, memory = used_shares(columns, request, rows)
        least = np.floor((np.floor(100 * (1 - cpu)) + np.floor(100 * (1 - memory))) / 2)
        # The standard deviation of two numbers is half of their distance.
        balanced = np.floor(100 * (1 - np.abs(cpu - memory) / 2))
        return least + balanced


def used_shares(columns: NodeTable, request: Request, rows: Rows) -> tuple[Floats, Floats]:
    """Parts of the CPU and of the memory in use once the request is there, 0 to 1."""
    cpu = columns.free_milli_cpu[rows] - request.milli_cpu
    memory = columns.free_memory_bytes[rows] - request.memory_bytes
    return (
        np.clip(1 - cpu / np.maximum(columns.total_milli_cpu[rows], 1), 0, 1),
        np.clip(1 - memory / np.maximum(columns.total_memory_bytes[rows], 1), 0, 1),
    )
