"""Random placement: the floor under every comparison."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penstock.scheduler.node_table import Floats, NodeTable, Rows
from penstock.scheduler.placement.policy import PlacementPolicy
from penstock.scheduler.request import Request


class Random(PlacementPolicy):
    """Any node that fits, any device that fits, each as likely as the others."""

    name: ClassVar[str] = "random"

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def score(self, columns: NodeTable, request: Request, rows: Rows) -> Floats:
        """The same for every node."""
        return np.zeros(len(rows))

    def choose(self, columns: NodeTable, request: Request, candidates: Rows) -> int:
        """A node drawn from those that fit."""
        return int(candidates[self._generator.integers(len(candidates))])

    def device(self, columns: NodeTable, request: Request, row: int, slots: list[int]) -> int:
        """A device drawn from those that fit."""
        return slots[int(self._generator.integers(len(slots)))]
