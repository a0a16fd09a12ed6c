"""What a node would look like after a request: the ways to place it, as arrays.

A request for whole devices, or for none, leaves a node in one way. A share can go to any device
with enough free; devices that are equally free are alike, so only the first of them is a way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.scheduler.node_table import Integers, NodeTable, Rows
from penstock.scheduler.placement.feasible import accepts_any_kind
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One entry per way to place a request; `index` points into the rows that were asked about."""

    index: Integers
    slot: Integers
    milli_cpu: Integers
    free: Integers
    """Thousandths free per device afterwards, shape (ways, devices)."""


def outcomes(columns: NodeTable, request: Request, rows: Rows) -> Outcomes:
    """Every way to place a request on rows where it fits."""
    free = columns.device_free[rows]
    cpu = columns.free_milli_cpu[rows] - request.milli_cpu
    if request.is_share:
        index, slot = np.nonzero(_first_of_equals(free) & _fitting(columns, request, rows, free))
        after = free[index]
        after[np.arange(len(index)), slot] -= request.accelerator_milli
        return Outcomes(index, slot, cpu[index], after)
    if request.accelerators:
        whole = _fitting(columns, request, rows, free)
        free[whole & (whole.cumsum(axis=1) <= request.accelerators)] -= WHOLE_DEVICE_MILLI
    everything = np.arange(len(rows))
    return Outcomes(everything, np.zeros(len(rows), dtype=np.int64), cpu, free)


def _fitting(
    columns: NodeTable, request: Request, rows: Rows, free: Integers
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    enough = free >= request.accelerator_milli
    if not accepts_any_kind(columns, request):
        codes = columns.kinds.codes(request.accelerator_kinds)
        enough &= np.isin(columns.device_kind[rows], codes)
    return enough


def _first_of_equals(free: Integers) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    same = free[:, :, None] == free[:, None, :]
    repeated: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = np.tril(same, -1).any(axis=2)
    return ~repeated
