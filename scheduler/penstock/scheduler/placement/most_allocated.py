"""Most: kube-scheduler's MostAllocated, the packing strategy that clusters are told to use."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penstock.scheduler.node_table import Floats, NodeTable, Rows
from penstock.scheduler.placement.policy import PlacementPolicy
from penstock.scheduler.placement.spread import used_shares
from penstock.scheduler.request import Request


class Most(PlacementPolicy):
    """The fullest node, by CPU and memory, in whole points."""

    name: ClassVar[str] = "most"
    epsilon = 0.5

    def score(self, columns: NodeTable, request: Request, rows: Rows) -> Floats:
        """Mean of the used parts of CPU and memory, 0 to 100."""
        cpu, memory = used_shares(columns, request, rows)
        return np.floor((np.floor(100 * cpu) + np.floor(100 * memory)) / 2)
