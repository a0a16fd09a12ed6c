"""How requests without accelerators eat into the CPU that accelerators need.

Where more CPU is asked for without accelerators than there is to spare, every node that such a
request fits on will be eaten down until none fits any more; what is free then is all that the
node's accelerators can count on. So a free accelerator on a node with 16 free cores is safe if
nobody asks for less than 48, and one on a node with 128 is not. This is what decides on a
CPU-bound cluster, and what neither free resources nor their shares tell.

Two quantities follow from the demand:

- the *pressure*, the part of the CPU asked for without accelerators that can only come out of what
  the requests with accelerators need: 0 while there is room for both;
- the *remainder* of a node with c cores free: a distribution, that of what is left when requests
  without accelerators come at random, by their frequency, until none fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.scheduler.node_table import Floats, Integers, NodeTable
from penstock.scheduler.placement.demand import Demand

MOST_PRESSURE: Final = 0.9
"""Bound of the pressure: however much is asked for, what is free now keeps a say. Without it, data
workers small enough to eat everything would make all nodes look equally lost."""

LEAST_PRESSURE: Final = 0.02
"""Pressure that is not worth counting with."""

_LEVELS: Final = 256  # steps in which the CPU of the largest node is counted
_LEAST_STEP_MILLI_CPU: Final = 1000  # whole cores, where that is fine enough: sizes then add up
_MOST_SLOTS: Final = 64  # per node and shape; more are not told apart: the table grows with it


@dataclass(frozen=True, slots=True)
class Erosion:
    """The pressure, and the slots per CPU level that are left of a node under it."""

    pressure: float
    step_milli_cpu: int
    left: Floats
    """left[s, c, k]: expected slots of shape s that remain of k, on a node with c steps of CPU."""

    def remaining(self, milli_cpu: Integers, slots: Floats) -> Floats:
        """Slots (rows, shapes) that can be counted on, for rows with this CPU (rows,) free."""
        level = np.clip(milli_cpu // self.step_milli_cpu, 0, self.left.shape[1] - 1)
        known = np.minimum(slots, self.left.shape[2] - 1).astype(np.intp)
        left: Floats = self.left[np.arange(slots.shape[1]), level[:, None], known]
        return (1.0 - self.pressure) * slots + self.pressure * left


def erosion(
    columns: NodeTable, demand: Demand, to_come: float, milli_cpu: Integers, most_slots: int
) -> Erosion | None:
    """The erosion to expect while `to_come` more requests come; None where CPU suffices for all.

    `milli_cpu` is what one slot needs, per shape; no node has more than `most_slots` of one.
    """
    bare = demand.bare_shares()
    rows = columns.rows()
    wanted = to_come * sum(size * share for size, share in bare.items())
    free = float(np.maximum(columns.free_milli_cpu[rows], 0).sum())
    spare = max(0.0, free - to_come * demand.mean_milli_cpu())
    pressure = min(MOST_PRESSURE, 1.0 - spare / wanted) if wanted > 0 else 0.0
    if pressure < LEAST_PRESSURE:
        return None
    largest = int(columns.total_milli_cpu[rows].max())
    step = max(_LEAST_STEP_MILLI_CPU, -(-largest // _LEVELS))
    sizes = np.array([-(-size // step) for size in bare], dtype=np.int64)
    tail = _at_least(remainder(largest // step + 1, sizes, np.array(list(bare.values()))))
    return Erosion(
        pressure, step, _slots_left(tail, milli_cpu / step, min(most_slots, _MOST_SLOTS))
    )


def remainder(levels: int, sizes: Integers, weights: Floats) -> Floats:
    """Probability that r steps of CPU (columns) are left of c (rows) when no size fits any more."""
    left = np.zeros((levels, levels))
    order = np.argsort(sizes, kind="stable")
    sizes, weights = sizes[order], weights[order]
    fitting, chances = 0, weights[:0]
    for level, fits in enumerate(np.searchsorted(sizes, np.arange(levels), "right").tolist()):
        if not fits:
            left[level, level] = 1.0
            continue
        if fits != fitting:
            fitting, chances = fits, weights[:fits] / weights[:fits].sum()
        left[level] = chances @ left[level - sizes[:fits]]
    return left


def _at_least(left: Floats) -> Floats:
    """P(remainder >= r), with a last column of zeros for what no node has."""
    tail: Floats = left[:, ::-1].cumsum(axis=1)[:, ::-1]
    return np.pad(tail, ((0, 0), (0, 1)))


def _slots_left(tail: Floats, steps: Floats, most_slots: int) -> Floats:
    """E[min(k, slots in the remainder)], shape (shapes, levels, k): the sum of P(at least j)."""
    count = np.arange(1, most_slots + 1)
    needed = np.minimum(np.ceil(steps[:, None] * count), tail.shape[1] - 1).astype(np.intp)
    expected = tail[:, needed].transpose(1, 0, 2).cumsum(axis=2)
    return np.pad(expected, ((0, 0), (0, 0), (1, 0)))
