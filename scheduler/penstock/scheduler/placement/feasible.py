"""The hard filter: on which nodes a request fits at all."""

from __future__ import annotations

import numpy as np

from penstock.scheduler.node_table import Flags, NodeTable, Rows
from penstock.scheduler.request import Request


def fits(columns: NodeTable, request: Request, rows: Rows) -> Flags:
    """Whether each row is schedulable and has the CPU, memory and accelerators."""
    return takes(columns, request, rows) & has_processors(columns, request, rows)


def takes(columns: NodeTable, request: Request, rows: Rows) -> Flags:
    """Whether each row is schedulable and has the memory."""
    mask: Flags = columns.schedulable[rows]
    mask &= columns.free_memory_bytes[rows] >= request.memory_bytes
    return mask


def has_processors(columns: NodeTable, request: Request, rows: Rows) -> Flags:
    """Whether each row has the CPU and accelerators: the same for rows of one state."""
    mask: Flags = columns.free_milli_cpu[rows] >= request.milli_cpu
    if not request.accelerators:
        return mask
    if not accepts_any_kind(columns, request):
        codes = columns.kinds.codes(request.accelerator_kinds)
        usable = np.isin(columns.device_kind[rows], codes)
        enough = (columns.device_free[rows] >= request.accelerator_milli) & usable
        mask &= enough.sum(axis=1) >= request.accelerators
        return mask
    if request.is_share:
        return mask & (columns.largest_device_milli[rows] >= request.accelerator_milli)
    return mask & (columns.whole_devices[rows] >= request.accelerators)


def accepts_any_kind(columns: NodeTable, request: Request) -> bool:
    """Whether the request takes every kind of accelerator that there is, so none is ruled out.

    Then the sums kept per node answer what would otherwise be asked of every device.
    """
    kinds = request.accelerator_kinds
    return not kinds or len(set(columns.kinds.codes(kinds))) == len(columns.kinds) > 0


def usable_slots(columns: NodeTable, request: Request, row: int) -> list[int]:
    """The device slots of a row that are of the right kind and have enough free, in order."""
    if not request.accelerators:
        return []
    codes = set(columns.kinds.codes(request.accelerator_kinds))
    free, kind = columns.device_free[row].tolist(), columns.device_kind[row].tolist()
    return [
        slot
        for slot, milli in enumerate(free)
        if milli >= request.accelerator_milli and (not codes or kind[slot] in codes)
    ]
