"""Stranding: the node on which a request strands least, and costs the fewest scarce places.

score = (1 - pressure) * (decrease of stranded accelerators
                          + CPU_WEIGHT * decrease of stranded CPU, counted in accelerators)
      - worth of what the node loses (`penstock.scheduler.placement.slot_prices`)

in accelerators. The first two terms make the fragmentation of GoldMiner (SIGMOD 2023, section 2)
an objective: a node whose CPU runs out before its accelerators is worth avoiding, one that has CPU
to spare is worth using. They know nothing of gangs, and alone they place 0.5 to 2.3 points less
than FGD before the cluster is full, because small jobs go to the few nodes that could take the
largest ones. The last term is what such a place is worth while the cluster still has to take those
jobs. The pressure (`penstock.scheduler.placement.cpu_erosion`) is zero unless more CPU is asked for
without accelerators than there is to spare; then a node's free CPU will be used up whatever its
share is, so shares say less, and what will be left for accelerators says more. Nodes within
`EPSILON` of the best count as equal: among them the tightest fit in accelerators wins, which keeps
the open nodes few, then the first by name.

Expressed as a potential: the score is the decrease of `burden`, so that the order of equal requests
does not matter and a row is scored from its own columns alone.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from penstock.scheduler.fragmentation import shares
from penstock.scheduler.node_table import Floats, Integers, Nodes, NodeTable, Rows
from penstock.scheduler.placement.demand import Demand
from penstock.scheduler.placement.outcomes import outcomes
from penstock.scheduler.placement.policy import PlacementPolicy, first_by_name
from penstock.scheduler.placement.slot_prices import Prices, set_prices
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request

CPU_WEIGHT: Final = 0.1
"""Weight of stranded CPU against stranded accelerators."""

EPSILON: Final = 0.02
"""Differences of the score that do not matter, in accelerators."""

MIN_REQUESTS_PER_PRICE: Final = 128
"""Prices are set anew after that many requests, or a tenth of the nodes where that is more."""


class Stranding(PlacementPolicy):
    """Least stranded resources and least loss of scarce slots."""

    name: ClassVar[str] = "stranding"
    by_state: ClassVar[bool] = True
    potential: ClassVar[bool] = True
    epsilon = EPSILON

    def __init__(self, cpu_weight: float = CPU_WEIGHT, demand: Demand | None = None) -> None:
        self._cpu_weight = cpu_weight
        self._demand = demand or Demand()
        self._prices: Prices | None = None
        self._until_new_prices = 0

    def observe(self, columns: NodeTable, request: Request) -> bool:
        """Count the request; set new prices when their time has come."""
        self._demand.observe(request)
        self._until_new_prices -= 1
        if self._until_new_prices > 0:
            return False
        self._until_new_prices = max(MIN_REQUESTS_PER_PRICE, len(columns) // 10)
        self._prices = set_prices(columns, self._demand)
        return True

    def score(self, columns: NodeTable, request: Request, rows: Rows) -> Floats:
        """Decrease of the burden, in accelerators, on the best device of each row."""
        index, decrease, _ = self._decreases(columns, request, rows)
        if not request.is_share:
            return decrease
        best = np.full(len(rows), -np.inf)
        np.maximum.at(best, index, decrease)
        return best

    def choose(self, columns: NodeTable, request: Request, candidates: Rows) -> int:
        """The tightest fit in accelerators; the first by name among equals."""
        free = columns.free_accelerator_milli[candidates]
        return first_by_name(columns, candidates[free == free.min()])

    def device(self, columns: NodeTable, request: Request, row: int, slots: list[int]) -> int:
        """The device with the largest decrease; the tightest among equals, then the first."""
        rows = np.array([row], dtype=np.intp)
        _, decrease, devices = self._decreases(columns, request, rows)
        free = columns.device_free[row]
        ranked = zip(decrease.round(6).tolist(), devices.tolist(), strict=True)
        return int(min((-value, free[slot], slot) for value, slot in ranked)[2])

    def burden(self, nodes: Nodes) -> Floats:
        """Accelerators that nodes with this CPU and these devices free strand, less worth."""
        total = nodes.total_accelerator_milli
        cpu = shares(nodes.milli_cpu, nodes.total_milli_cpu)
        lean = (cpu - shares(nodes.free.sum(axis=1), total)) * total
        burden: Floats = np.maximum(-lean, self._cpu_weight * lean)
        if self._prices is not None:
            burden *= 1.0 - self._prices.pressure
            burden -= self._prices.worth(nodes.milli_cpu, nodes.free, nodes.kind)
        return burden / WHOLE_DEVICE_MILLI

    def _decreases(
        self, columns: NodeTable, request: Request, rows: Rows
    ) -> tuple[Integers, Floats, Integers]:
        ways = outcomes(columns, request, rows)
        both = np.concatenate((rows, rows[ways.index]))
        burden = self.burden(  # before and after in one call, which for few rows costs like one
            Nodes(
                total_milli_cpu=columns.total_milli_cpu[both],
                milli_cpu=np.concatenate((columns.free_milli_cpu[rows], ways.milli_cpu)),
                total_accelerator_milli=columns.total_accelerator_milli[both],
                free=np.concatenate((columns.device_free[rows], ways.free)),
                kind=columns.device_kind[both],
            )
        )
        before, after = burden[: len(rows)], burden[len(rows) :]
        return ways.index, before[ways.index] - after, ways.slot
