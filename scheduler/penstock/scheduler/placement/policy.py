"""What a placement policy is: a score per node, a choice among the best, a device on the node.

A policy is pure: the same columns, request and seeded generator give the same choice. The engine
has already left out the nodes that the request does not fit on.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penstock.scheduler.node_table import Floats, Nodes, NodeTable, Rows
from penstock.scheduler.request import Request


class PlacementPolicy:
    """Base of the placement policies; `score` is theirs, the rest has the usual answer."""

    name: ClassVar[str]

    epsilon: float = 1e-9
    """Scores that close to the best count as equal to it."""

    by_state: ClassVar[bool] = False
    """Whether rows with the same CPU and devices, in total and free, have the same score."""

    potential: ClassVar[bool] = False
    """Whether a request for whole devices, or for none, scores by how much it lowers `burden`, and
    `choose` takes the tightest fit in accelerators, and of those the first by name."""

    def score(self, columns: NodeTable, request: Request, rows: Rows) -> Floats:
        """The value of putting the request on each of these rows; the largest is the best."""
        raise NotImplementedError

    def burden(self, nodes: Nodes) -> Floats:
        """The potential of each node, where the policy has one; it depends on nothing else."""
        raise NotImplementedError

    def choose(self, columns: NodeTable, request: Request, candidates: Rows) -> int:
        """One row among those with the best score: the first by name."""
        return first_by_name(columns, candidates)

    def device(self, columns: NodeTable, request: Request, row: int, slots: list[int]) -> int:
        """Which of these device slots a request for a part of one gets: the tightest fit."""
        free = columns.device_free[row]
        return min(slots, key=lambda slot: (free[slot], slot))

    def observe(self, columns: NodeTable, request: Request) -> bool:
        """Note that a request came; True where that changes what `score` says from now on."""
        return False


def first_by_name(columns: NodeTable, candidates: Rows) -> int:
    """The row whose node comes first in the order of names."""
    if len(candidates) == 1:
        return int(candidates[0])
    return int(candidates[np.argmin(columns.name_rank()[candidates])])
