"""FGD: the node whose expected fragmentation grows least (Weng et al., USENIX ATC 2023).

Kept as published by the authors' artifact, because it is the reference that others compare with:
the score is ``int(100 * sigmoid(decrease / one GPU))`` with that quantisation, ties go to the first
node by name, and device ties to the lowest index. Without the quantisation it is a worse policy.

The expected fragmentation of a node is, over the typical requests, how much of its free
accelerators the request could not use. It is computed from sums over the devices, so scoring one
row costs one matrix product over the distinct accelerator sizes of the typical requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import numpy as np

from penstock.scheduler.node_table import Floats, Integers, NodeTable, Rows
from penstock.scheduler.placement.outcomes import outcomes
from penstock.scheduler.placement.policy import PlacementPolicy
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request

POPULARITY: Final = 0.95
"""Typical requests are the most frequent ones that together are this part of all."""


def typical_requests(
    requests: Iterable[Request], popularity: float = POPULARITY
) -> Mapping[Request, float]:
    """The most frequent shapes that cover `popularity` of the requests, with their frequencies.

    Memory does not tell shapes apart; requests without accelerators count too. Equal counts are
    ordered by size, larger first, so that the set does not depend on the order of the requests.
    """
    counts = Counter(
        Request(
            milli_cpu=request.milli_cpu,
            accelerators=request.accelerators,
            accelerator_milli=request.accelerator_milli,
            accelerator_kinds=request.accelerator_kinds,
        )
        for request in requests
    )
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda item: (item[1], _order(item[0])), reverse=True)
    chosen: dict[Request, int] = {}
    covered = 0
    for shape, count in ordered:
        if covered >= popularity * total:
            break
        chosen[shape] = count
        covered += count
    return {shape: count / covered for shape, count in chosen.items()}


def _order(shape: Request) -> tuple[int, int, int, tuple[str, ...]]:
    milli = shape.accelerator_milli if shape.accelerators else 0
    return shape.milli_cpu, milli, shape.accelerators, shape.accelerator_kinds


class ExpectedFragmentation:
    """Thousandths of accelerators that the typical requests are expected not to be able to use."""

    def __init__(self, typical: Mapping[Request, float]) -> None:
        shapes = [(shape, weight) for shape, weight in typical.items() if shape.accelerators]
        sizes = sorted(
            {(s.accelerator_milli, s.accelerators, s.accelerator_kinds) for s, _ in shapes}
        )
        cpus = sorted({shape.milli_cpu for shape, _ in shapes})
        weights = np.zeros((len(cpus) + 1, len(sizes)))
        for shape, weight in shapes:
            size = (shape.accelerator_milli, shape.accelerators, shape.accelerator_kinds)
            weights[cpus.index(shape.milli_cpu) + 1, sizes.index(size)] += weight
        self._cpus: Integers = np.array(cpus, dtype=np.int64)
        self._weights: Floats = weights.cumsum(axis=0)
        self._milli: Integers = np.array([size[0] for size in sizes], dtype=np.int64)
        self._count: Integers = np.array([size[1] for size in sizes], dtype=np.int64)
        self._kinds = [size[2] for size in sizes]
        self._any_kind = not any(self._kinds)

    def of(self, columns: NodeTable, rows: Rows, milli_cpu: Integers, free: Integers) -> Floats:
        """Expected fragmentation of rows that had this CPU and these devices free.

        `milli_cpu` has shape (rows,), `free` (rows, devices).
        """
        fitting = free[:, :, None] >= self._milli  # rows x devices x sizes
        if not self._any_kind:
            fitting &= self._accessible(columns)[columns.device_kind[rows]]
        enough = fitting.sum(axis=1) >= self._count
        usable = np.einsum("rd,rds->rs", free.astype(np.float64), fitting) * enough
        weights = self._weights[np.searchsorted(self._cpus, milli_cpu, side="right")]
        fragmented: Floats = free.sum(axis=1) - np.einsum("rs,rs->r", usable, weights)
        return fragmented

    def _accessible(self, columns: NodeTable) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """Whether a device of each kind code will do for each size; the last code is no device."""
        known = len(columns.kinds)
        table = np.zeros((known + 1, len(self._kinds)), dtype=np.bool_)
        for size, kinds in enumerate(self._kinds):
            if kinds:
                table[columns.kinds.codes(kinds), size] = True
            else:
                table[:known, size] = True
        return table


class Fgd(PlacementPolicy):
    """Fragmentation Gradient Descent, for a given distribution of requests."""

    name: ClassVar[str] = "fgd"
    epsilon = 0.5

    def __init__(self, typical: Mapping[Request, float]) -> None:
        self._fragmentation = ExpectedFragmentation(typical)

    def score(self, columns: NodeTable, request: Request, rows: Rows) -> Floats:
        """Quantised decrease of the expected fragmentation, 0 to 100."""
        best = np.full(len(rows), -1.0)
        index, decrease, _ = self._decreases(columns, request, rows)
        np.maximum.at(best, index, _quantised(decrease))
        return best

    def device(self, columns: NodeTable, request: Request, row: int, slots: list[int]) -> int:
        """The device with the best quantised score; the lowest index among equals."""
        _, decrease, devices = self._decreases(columns, request, np.array([row], dtype=np.intp))
        values = _quantised(decrease)
        options = [(-value, slot) for value, slot in zip(values, devices, strict=True)]
        return int(min(option for option in options if option[1] in slots)[1])

    def _decreases(
        self, columns: NodeTable, request: Request, rows: Rows
    ) -> tuple[Integers, Floats, Integers]:
        """For each way to place the request: index into rows, decrease, device slot."""
        before = self._fragmentation.of(
            columns, rows, columns.free_milli_cpu[rows], columns.device_free[rows]
        )
        ways = outcomes(columns, request, rows)
        after = self._fragmentation.of(columns, rows[ways.index], ways.milli_cpu, ways.free)
        return ways.index, before[ways.index] - after, ways.slot


def _quantised(decrease: Floats) -> Floats:
    # Rounded first: a decrease of zero must score 50 whatever the order of the sums was.
    return np.floor(100.0 / (1.0 + np.exp(-decrease.round(6) / WHOLE_DEVICE_MILLI)))
