"""Best fit: the node that has the least left over (the BestFit baseline of Weng et al., ATC 2023).

The left-over is half the CPU and half the accelerators, each as a part of the largest node of the
artifact's cluster (128 cores, 8 GPUs), in whole percent; ties go to the first node by name.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from penstock.scheduler.node_table import Floats, NodeTable, Rows
from penstock.scheduler.placement.policy import PlacementPolicy
from penstock.scheduler.request import Request

LARGEST_NODE_MILLI_CPU: Final = 128_000
LARGEST_NODE_ACCELERATOR_MILLI: Final = 8_000


class BestFit(PlacementPolicy):
    """Least left over of CPU and accelerators together."""

    name: ClassVar[str] = "bestfit"
    epsilon = 0.5

    def score(self, columns: NodeTable, request: Request, rows: Rows) -> Floats:
        """100 minus the percentage left over, truncated."""
        cpu = (columns.free_milli_cpu[rows] - request.milli_cpu) / LARGEST_NODE_MILLI_CPU
        accelerators = (
            columns.free_accelerator_milli[rows] - request.total_accelerator_milli
        ) / LARGEST_NODE_ACCELERATOR_MILLI
        return np.trunc(100.0 * (1.0 - 0.5 * cpu - 0.5 * accelerators))
