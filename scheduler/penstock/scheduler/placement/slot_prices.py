"""What a place on a node is worth to those who will want it: slot prices.

Scores that look at one node at a time break up rare places: a node that alone can take the largest
jobs is, for a small job, as good as any other. What a place is worth depends on the whole cluster.
So for each shape asked for lately (`penstock.scheduler.placement.demand`) the cluster's *slots* are
counted: how many more of that shape it could take. The price of a slot of shape s is

    WORTH * accelerators(s) * min(1, expected(s) / slots(s)) ** SCARCITY

where expected(s) is how many of the requests that still fit into the free accelerators will be of
that shape. It is about zero where there are slots in plenty, and WORTH times the shape where every
slot will be needed: a job that finds no place idles its accelerators, and the fragments that are
left of the place idle some more.

Many shapes may each want few of a *kind* of accelerator and together want them all. So a free
accelerator of those kinds has a price of its own, by the same formula over everybody who can use
nothing else.

Where CPU is short, slots count only as far as others will leave them
(`penstock.scheduler.placement.cpu_erosion`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from penstock.scheduler.node_table import Flags, Floats, Integers, NodeTable
from penstock.scheduler.placement.cpu_erosion import Erosion, erosion
from penstock.scheduler.placement.demand import Demand, Shape
from penstock.scheduler.request import WHOLE_DEVICE_MILLI

WORTH: Final = 2.0
"""What a slot is worth, in accelerators that it has, when every slot of its shape is needed."""

SCARCITY: Final = 4
"""How sharply the price falls with plenty: at half the need, a slot is worth 1/16 of that."""

_WORTHLESS_MILLI: Final = 1.0  # prices below a thousandth of an accelerator are left out


@dataclass(frozen=True, slots=True)
class _Alike:
    """Shapes that differ only in how many devices they want: one look at the devices does."""

    codes: Integers | None
    milli: int
    shapes: slice
    counts: Floats


class Slots:
    """How many requests of some shapes nodes could take, were each the only shape.

    Fastest where shapes that differ only in CPU and count follow each other.
    """

    def __init__(self, columns: NodeTable, shapes: Sequence[Shape]) -> None:
        self.shapes = tuple(shapes)
        self.milli_cpu: Integers = np.array([shape.milli_cpu for shape in shapes], dtype=np.int64)
        self._groups = _groups(columns, self.shapes)

    def count(self, milli_cpu: Integers, free: Integers, kind: Integers) -> Floats:
        """Slots (rows, shapes) of rows with this CPU (rows,) and these devices (rows, d) free."""
        slots = np.maximum(milli_cpu, 0)[:, None] / np.maximum(self.milli_cpu, 1)
        for group in self._groups:
            usable = free if group.codes is None else _of_kinds(free, kind, group.codes)
            if group.milli < WHOLE_DEVICE_MILLI:
                fitting = np.floor(np.maximum(usable, 0) / group.milli).sum(axis=1)
            else:
                fitting = (usable == WHOLE_DEVICE_MILLI).sum(axis=1)
            part = slots[:, group.shapes]
            np.minimum(part, fitting[:, None] / group.counts, out=part)
        return np.floor(slots, out=slots)


def _alike(shape: Shape) -> tuple[tuple[str, ...], int]:
    return shape.accelerator_kinds, shape.accelerator_milli


def _groups(columns: NodeTable, shapes: Sequence[Shape]) -> list[_Alike]:
    groups: list[_Alike] = []
    start = 0
    for (kinds, milli), members in groupby(shapes, key=_alike):
        counts = np.array([shape.accelerators for shape in members], dtype=np.float64)
        end = start + len(counts)
        groups.append(_Alike(_codes(columns, kinds), milli, slice(start, end), counts))
        start = end
    return groups


def _codes(columns: NodeTable, kinds: Sequence[str]) -> Integers | None:
    """Codes of the kinds that will do; None where every kind that there is will."""
    codes = sorted(set(columns.kinds.codes(kinds)))
    if not kinds or len(codes) == len(columns.kinds):
        return None
    return np.array(codes, dtype=np.int64)


def _of_kinds(free: Integers, kind: Integers, codes: Integers) -> Integers:
    wanted: Flags = np.isin(kind, codes)
    return np.where(wanted, free, 0)


class Prices:
    """Prices in thousandths of an accelerator: of slots, and of devices of scarce kinds."""

    def __init__(
        self,
        slots: Slots,
        prices: Floats,
        kinds: Sequence[tuple[Integers, float]] = (),
        eaten: Erosion | None = None,
    ) -> None:
        self.slots = slots
        self.prices = prices
        self._kinds = tuple(kinds)
        self._erosion = eaten

    def __len__(self) -> int:
        return len(self.prices) + len(self._kinds)

    @property
    def pressure(self) -> float:
        """How far requests without accelerators outgrow the CPU that is to spare, 0 to 1."""
        return 0.0 if self._erosion is None else self._erosion.pressure

    def worth(self, milli_cpu: Integers, free: Integers, kind: Integers) -> Floats:
        """What rows with this CPU (rows,) and these devices (rows, d) free are worth."""
        worth = np.zeros(len(free))
        if len(self.prices):
            slots = self.slots.count(milli_cpu, free, kind)
            if self._erosion is not None:
                slots = self._erosion.remaining(milli_cpu, slots)
            worth += slots @ self.prices
        for codes, price in self._kinds:
            worth += price * np.maximum(_of_kinds(free, kind, codes), 0).sum(axis=1)
        return worth


def set_prices(columns: NodeTable, demand: Demand) -> Prices | None:
    """The prices now, for what is worth something; None where nothing is."""
    shares = demand.shares()
    rows = columns.rows()
    mean = demand.mean_milli()
    if mean <= 0 or not len(rows):
        return None
    free, kind = columns.device_free[rows], columns.device_kind[rows]
    every = Slots(columns, sorted(shares, key=_alike))
    slots = every.count(columns.free_milli_cpu[rows], free, kind)
    to_come = max(0.0, float(columns.free_accelerator_milli[rows].sum())) / mean
    expected = to_come * np.array([shares[shape] for shape in every.shapes])
    worth = np.array([shape.total_milli for shape in every.shapes], dtype=np.float64)
    prices = worth * _price(expected, slots.sum(axis=0))
    chosen = np.flatnonzero(prices >= _WORTHLESS_MILLI)
    kinds = _kind_prices(columns, demand.milli_by_kinds(), to_come, free, kind)
    if not len(chosen) and not kinds:
        return None
    kept = Slots(columns, [every.shapes[index] for index in chosen.tolist()])
    most = int(slots[:, chosen].max(initial=0.0))
    eaten = erosion(columns, demand, to_come, kept.milli_cpu, most)
    return Prices(kept, prices[chosen], kinds, eaten)


def _price(expected: Floats, slots: Floats) -> Floats:
    """Worth of one accelerator in a slot, by how many of the slots will be needed."""
    price: Floats = WORTH * np.minimum(1.0, expected / np.maximum(slots, 1.0)) ** SCARCITY
    return price


def _kind_prices(
    columns: NodeTable,
    wanted: Mapping[tuple[str, ...], float],
    to_come: float,
    free: Integers,
    kind: Integers,
) -> list[tuple[Integers, float]]:
    """Prices of a device of kinds that somebody can do with only, per thousandth of it."""
    prices = []
    for kinds in wanted:
        codes = _codes(columns, kinds)
        if codes is None:
            continue
        captive = sum(milli for other, milli in wanted.items() if other and {*other} <= {*kinds})
        supply = float(np.maximum(_of_kinds(free, kind, codes), 0).sum())
        price = float(_price(np.array([to_come * captive]), np.array([supply]))[0])
        if price * WHOLE_DEVICE_MILLI >= _WORTHLESS_MILLI:
            prices.append((codes, price))
    return prices
