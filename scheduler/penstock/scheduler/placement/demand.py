"""What has been asked for lately, and what a place for it is worth: slot prices.

Scores that look at one node at a time break up rare places: a node that alone can take the largest
jobs is, for a small job, as good as any other. What a place is worth depends on the whole cluster.
So the policy counts, over a window of requests, how often each shape comes, and how many more of
that shape the cluster could take (its *slots*). The price of a slot of shape s is

    WORTH * accelerators(s) * min(1, expected(s) / slots(s)) ** SCARCITY

where expected(s) is how many of the requests that still fit into the free accelerators will be of
that shape. It is about zero where there are slots in plenty, and WORTH times the shape where every
slot will be needed: a job that finds no place idles its accelerators, and the fragments that are
left of the place idle some more. Nothing about the workload has to be known before: prices are
learned from the requests as they come.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.scheduler.columns import Columns, Floats, Integers
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request

WINDOW: Final = 8192
"""Requests that are remembered; beyond, all counts are halved."""

SHAPES: Final = 64
"""Shapes that have a price: those that ask for the most accelerators together."""

WORTH: Final = 2.0
"""What a slot is worth, in accelerators that it has, when every slot of its shape is needed."""

SCARCITY: Final = 4
"""How sharply the price falls with plenty: at half the need, a slot is worth 1/16 of that."""

_WORTHLESS_MILLI: Final = 1.0  # prices below a thousandth of an accelerator are left out


@dataclass(frozen=True, slots=True)
class Shape:
    """What tells requests apart for their price."""

    milli_cpu: int
    accelerators: int
    accelerator_milli: int

    @property
    def total_milli(self) -> int:
        """Thousandths of accelerators that one request of this shape takes."""
        return self.accelerators * self.accelerator_milli


class Demand:
    """Counts of the shapes asked for; bounded by the window."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._counts: Counter[Shape] = Counter()
        self._requests = 0

    @property
    def requests(self) -> int:
        """Requests counted, those without accelerators too."""
        return self._requests

    def observe(self, request: Request) -> None:
        """Count one request."""
        self._requests += 1
        if request.accelerators:
            shape = Shape(request.milli_cpu, request.accelerators, request.accelerator_milli)
            self._counts[shape] += 1
        if self._requests >= self._window:
            self._requests //= 2
            halved = {shape: count // 2 for shape, count in self._counts.items() if count > 1}
            self._counts = Counter(halved)

    def shares(self, most: int = SHAPES) -> dict[Shape, float]:
        """The shapes that ask for most accelerators together, and their part of all requests."""
        largest = sorted(
            self._counts.items(),
            key=lambda item: (item[0].total_milli * item[1], item[0].milli_cpu),
            reverse=True,
        )
        return {shape: count / self._requests for shape, count in largest[:most]}

    def mean_milli(self) -> float:
        """Thousandths of accelerators that a request asks for on average."""
        total = sum(shape.total_milli * count for shape, count in self._counts.items())
        return total / self._requests if self._requests else 0.0


@dataclass(frozen=True, slots=True)
class SlotPrices:
    """Prices, in thousandths of an accelerator, for slots of some shapes."""

    milli_cpu: Integers
    accelerators: Integers
    accelerator_milli: Integers
    prices: Floats

    def __len__(self) -> int:
        return len(self.prices)

    def worth(self, milli_cpu: Integers, free: Integers) -> Floats:
        """What the slots of nodes with this CPU (rows,) and these devices (rows, d) are worth."""
        return self.slots(milli_cpu, free) @ self.prices

    def slots(self, milli_cpu: Integers, free: Integers) -> Floats:
        """How many requests of each shape each node could take, were it the only shape."""
        fitting = np.empty((len(free), len(self.prices)))
        whole = (free == WHOLE_DEVICE_MILLI).sum(axis=1).astype(np.float64)
        shared = np.maximum(free, 0).astype(np.float64)
        # Floats divide several times faster than integers do, and these quotients are exact enough
        # for floor: numerator and denominator are far below 2**53.
        for shape, (count, milli) in enumerate(
            zip(self.accelerators.tolist(), self.accelerator_milli.tolist(), strict=True)
        ):
            if milli < WHOLE_DEVICE_MILLI:
                fitting[:, shape] = np.floor(shared / milli).sum(axis=1)
            else:
                fitting[:, shape] = whole / count
        cpu = np.maximum(milli_cpu, 0).astype(np.float64)
        slots: Floats = np.minimum(fitting, cpu[:, None] / np.maximum(self.milli_cpu, 1))
        return np.floor(slots, out=slots)


def slot_prices(columns: Columns, demand: Demand) -> SlotPrices:
    """The prices now, for the shapes where they are worth something."""
    shares = demand.shares()
    every = _price_list(list(shares), np.ones(len(shares)))
    rows = columns.rows()
    mean = demand.mean_milli()
    if not shares or mean <= 0 or not len(rows):
        return _price_list([], np.zeros(0))
    slots = every.slots(columns.free_milli_cpu[rows], columns.device_free[rows]).sum(axis=0)
    to_come = max(0.0, float(columns.free_accelerator_milli[rows].sum())) / mean
    expected = to_come * np.array(list(shares.values()))
    needed = np.minimum(1.0, expected / np.maximum(slots, 1.0))
    prices = WORTH * np.array([shape.total_milli for shape in shares]) * needed**SCARCITY
    worthwhile = prices >= _WORTHLESS_MILLI
    shapes = [shape for shape, keep in zip(shares, worthwhile, strict=True) if keep]
    return _price_list(shapes, prices[worthwhile])


def _price_list(shapes: list[Shape], prices: Floats) -> SlotPrices:
    return SlotPrices(
        np.array([shape.milli_cpu for shape in shapes], dtype=np.int64),
        np.array([shape.accelerators for shape in shapes], dtype=np.int64),
        np.array([shape.accelerator_milli for shape in shapes], dtype=np.int64),
        prices,
    )
