"""The states that nodes are in, or would be in with one request more, by number.

A state is a node's CPU and its devices, in total and free. What a request leaves of a node depends
on its state alone, and so does what a policy with a potential thinks of it; the first is computed
once for each state and request, the second once for each state and new prices, however many nodes
are in it. Devices of one kind are alike: which of them are free makes no other state. Of a node
with several kinds the order counts, since the first devices that will do are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from penstock.scheduler.node_table import NO_DEVICE, Integers, Nodes, NodeTable
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request

IMPOSSIBLE: Final = -1
"""In place of a state: the request does not fit."""

_LEAST: Final = 1024
_Key = tuple[int, int, tuple[int, ...], int]


@dataclass(slots=True)
class _Columns:
    """What is known of each state, one row per number."""

    total_milli_cpu: Integers
    milli_cpu: Integers
    total_accelerator_milli: Integers
    free_accelerator_milli: Integers
    free: Integers
    kind: Integers


class NodeStates:
    """Numbers from 0, of nodes with up to so many devices; they only ever become more."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._numbers: dict[_Key, int] = {}
        self._keys: list[_Key] = []
        self._kinds: dict[bytes, int] = {}
        self._kind_rows: list[tuple[int, ...]] = []
        self._only_kind: list[int | None] = []
        """By code of the row of kinds: the one that the node has; None: several."""
        self._columns = _Columns(
            *(np.zeros(_LEAST, dtype=np.int64) for _ in range(4)),
            *(np.zeros((_LEAST, devices), dtype=np.int64) for _ in range(2)),
        )

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def capacity(self) -> int:
        """Numbers for which there is room before the arrays grow."""
        return len(self._columns.milli_cpu)

    @property
    def free_accelerator_milli(self) -> Integers:
        """Of each state, and of numbers beyond; read-only."""
        return self._columns.free_accelerator_milli

    def number(self, columns: NodeTable, row: int) -> int:
        """The state that a node is in now."""
        kinds = columns.device_kind[row].tobytes()
        code = self._kinds.get(kinds)
        if code is None:
            code = self._kinds[kinds] = len(self._kind_rows)
            there = tuple(columns.device_kind[row].tolist())
            own = {kind for kind in there if kind != NO_DEVICE}
            self._kind_rows.append(there)
            self._only_kind.append(max(own, default=NO_DEVICE) if len(own) < 2 else None)
        free = columns.device_free[row].tolist()
        if self._only_kind[code] is not None:
            free.sort(reverse=True)
        cpu = int(columns.free_milli_cpu[row])
        return self._number((int(columns.total_milli_cpu[row]), cpu, tuple(free), code))

    def after(self, number: int, request: Request, codes: Sequence[int] | None) -> int:
        """The state in which a request for whole devices, or none, leaves a node; `IMPOSSIBLE`
        where it does not fit. ``codes``: of the kinds that will do; None: all."""
        total, cpu, free, kinds = self._keys[number]
        left = cpu - request.milli_cpu
        if left < 0:
            return IMPOSSIBLE
        if request.accelerators:
            kind = self._only_kind[kinds]
            taken = (
                self._taken(free, kinds, request.accelerators, codes)
                if kind is None
                else _taken_of_one_kind(free, kind, request.accelerators, codes)
            )
            if taken is None:
                return IMPOSSIBLE
            free = taken
        return self._number((total, left, free, kinds))

    def _taken(
        self, free: tuple[int, ...], kinds: int, wanted: int, codes: Sequence[int] | None
    ) -> tuple[int, ...] | None:
        """What is left of devices of several kinds, of which the first that will do are taken."""
        devices, row = list(free), self._kind_rows[kinds]
        for slot, milli in enumerate(free):
            if milli == WHOLE_DEVICE_MILLI and (codes is None or row[slot] in codes):
                devices[slot] = 0
                wanted -= 1
                if not wanted:
                    return tuple(devices)
        return None

    def nodes(self, start: int) -> Nodes:
        """The states from a number on, as a policy judges nodes."""
        part = slice(start, len(self._keys))
        own = self._columns
        return Nodes(
            total_milli_cpu=own.total_milli_cpu[part],
            milli_cpu=own.milli_cpu[part],
            total_accelerator_milli=own.total_accelerator_milli[part],
            free=own.free[part],
            kind=own.kind[part],
        )

    def _number(self, key: _Key) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._keys)
            self._keys.append(key)
            if number == self.capacity:
                for field in fields(_Columns):
                    values = getattr(self._columns, field.name)
                    grown = np.concatenate((values, np.zeros_like(values)))
                    setattr(self._columns, field.name, grown)
            total, cpu, free, kinds = key
            row, own = self._kind_rows[kinds], self._columns
            own.total_milli_cpu[number] = total
            own.milli_cpu[number] = cpu
            present = sum(kind != NO_DEVICE for kind in row)
            own.total_accelerator_milli[number] = WHOLE_DEVICE_MILLI * present
            own.free_accelerator_milli[number] = sum(free)
            own.free[number] = free
            own.kind[number] = row
        return number


def _taken_of_one_kind(
    free: tuple[int, ...], kind: int, wanted: int, codes: Sequence[int] | None
) -> tuple[int, ...] | None:
    """What is left of devices of one kind, the freest first."""
    if wanted > len(free) or free[wanted - 1] < WHOLE_DEVICE_MILLI:
        return None
    if codes is not None and kind not in codes:
        return None
    return free[wanted:] + (0,) * wanted
