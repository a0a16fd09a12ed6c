"""Nodes as numpy columns: one row per node, and a log of the rows that changed.

Scores are computed over columns, so a placement costs a few vector operations and not a walk over
objects. Every change of a row is noted in a bounded log; whoever caches something per row (see
`penstock.scheduler.placement.engine`) asks for the rows that changed since it last looked.

Invariants: the sums kept beside the device matrix equal what the matrix says; `take` and `give`
move resources only within a node's totals; a removed row is inactive until it is used again. Free
resources may be *set* to less than nothing, because a cluster may be over-committed by others; they
are never *taken* below it.

Units: milli-cores, bytes, thousandths of an accelerator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.scheduler.change_log import ChangeLog
from penstock.scheduler.errors import InvalidRequestError, OverCommitError
from penstock.scheduler.kind_codes import KindCodes
from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request

Rows = NDArray[np.intp]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NO_DEVICE: Final = -1
"""Kind code of the slots of the device matrix that hold no device."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes as a potential judges them: arrays of one length, devices in rows."""

    total_milli_cpu: Integers
    milli_cpu: Integers
    total_accelerator_milli: Integers
    free: Integers
    """Thousandths free of each device."""
    kind: Integers
    """Code of each device's kind."""


class NodeTable:
    """The nodes that requests are placed on.

    Attributes (arrays of length `capacity`, valid where `active`):
        total_milli_cpu, free_milli_cpu, total_memory_bytes, free_memory_bytes
        total_accelerator_milli, free_accelerator_milli: all devices of the node together
        whole_devices: devices that nobody uses a part of
        largest_device_milli: the most that one device has free
        device_free: thousandths free per device, one row per node
        device_kind: code of each device's kind, `NO_DEVICE` where there is none
        kinds: what those codes stand for
        changes: the rows that have changed
    """

    def __init__(self, capacity: int = 64, devices: int = 8) -> None:
        self.names: list[str] = []
        self.size = 0
        self._row_by_name: dict[str, int] = {}
        self._unused: list[int] = []
        self.kinds = KindCodes()
        self.changes = ChangeLog()
        self._rank: Integers | None = None
        self._allocate(max(1, capacity), max(1, devices))

    def _allocate(self, capacity: int, devices: int) -> None:
        self.active: Flags = np.zeros(capacity, dtype=np.bool_)
        self.schedulable: Flags = np.zeros(capacity, dtype=np.bool_)
        self.total_milli_cpu: Integers = np.zeros(capacity, dtype=np.int64)
        self.free_milli_cpu: Integers = np.zeros(capacity, dtype=np.int64)
        self.total_memory_bytes: Integers = np.zeros(capacity, dtype=np.int64)
        self.free_memory_bytes: Integers = np.zeros(capacity, dtype=np.int64)
        self.total_accelerator_milli: Integers = np.zeros(capacity, dtype=np.int64)
        self.free_accelerator_milli: Integers = np.zeros(capacity, dtype=np.int64)
        self.whole_devices: Integers = np.zeros(capacity, dtype=np.int64)
        self.largest_device_milli: Integers = np.zeros(capacity, dtype=np.int64)
        self.device_free: Integers = np.zeros((capacity, devices), dtype=np.int64)
        self.device_kind: Integers = np.full((capacity, devices), NO_DEVICE, dtype=np.int64)

    _PER_ROW: Final = (
        "active",
        "schedulable",
        "total_milli_cpu",
        "free_milli_cpu",
        "total_memory_bytes",
        "free_memory_bytes",
        "total_accelerator_milli",
        "free_accelerator_milli",
        "whole_devices",
        "largest_device_milli",
    )

    @property
    def capacity(self) -> int:
        """Rows that fit before the columns grow."""
        return len(self.active)

    def __len__(self) -> int:
        return len(self._row_by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._row_by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._row_by_name)

    def row(self, name: str) -> int:
        """The row of the node of that name; KeyError where there is none."""
        return self._row_by_name[name]

    def rows(self) -> Rows:
        """The rows in use, in no particular order of names."""
        return np.flatnonzero(self.active)

    def name_rank(self) -> Integers:
        """Place of each row in the order of names: what makes a choice among equals repeatable."""
        if self._rank is None:
            rank = np.full(self.capacity, self.capacity, dtype=np.int64)
            for place, name in enumerate(sorted(self._row_by_name)):
                rank[self._row_by_name[name]] = place
            self._rank = rank
        return self._rank

    def add(
        self,
        name: str,
        *,
        milli_cpu: int,
        memory_bytes: int,
        devices: Sequence[str] = (),
        schedulable: bool = True,
    ) -> int:
        """Add an empty node and return its row. `devices` names the kind of each accelerator.

        Raises:
            InvalidRequestError: the name is taken or a total is negative.
        """
        if name in self._row_by_name:
            raise InvalidRequestError("node", name, "is there already")
        for field, value in (("milli_cpu", milli_cpu), ("memory_bytes", memory_bytes)):
            if value < 0:
                raise InvalidRequestError(f"{name}: {field}", value, "must be at least 0")
        row = self._unused.pop() if self._unused else self.size
        if row == self.size:
            self.size += 1
            self.names.append(name)
        if row >= self.capacity or len(devices) > self.device_free.shape[1]:
            self._grow(row + 1, len(devices))
        self.names[row] = name
        self._row_by_name[name] = row
        self._rank = None
        self.active[row] = True
        self.schedulable[row] = schedulable
        self.total_milli_cpu[row] = self.free_milli_cpu[row] = milli_cpu
        self.total_memory_bytes[row] = self.free_memory_bytes[row] = memory_bytes
        self.total_accelerator_milli[row] = len(devices) * WHOLE_DEVICE_MILLI
        self.device_free[row] = 0
        self.device_kind[row] = NO_DEVICE
        for slot, kind in enumerate(devices):
            self.device_free[row, slot] = WHOLE_DEVICE_MILLI
            self.device_kind[row, slot] = self.kinds.code(kind)
        self._sum_devices(row, self.device_free[row].tolist())
        return row

    def _grow(self, rows: int, devices: int) -> None:
        old = {name: getattr(self, name) for name in self._PER_ROW}
        free, kind = self.device_free, self.device_kind
        slots = max(devices, free.shape[1])
        capacity = self.capacity if rows <= self.capacity else max(rows, 2 * self.capacity)
        self._allocate(capacity, slots)
        for name, values in old.items():
            getattr(self, name)[: len(values)] = values
        self.device_free[: len(free), : free.shape[1]] = free
        self.device_kind[: len(kind), : kind.shape[1]] = kind
        self._rank = None
        self.changes.clear()  # caches sized by the old capacity start anew

    def remove(self, name: str) -> None:
        """Take a node out; its row may be used again for another one."""
        row = self._row_by_name.pop(name)
        for column in self._PER_ROW:
            getattr(self, column)[row] = 0
        self.device_free[row] = 0
        self.device_kind[row] = NO_DEVICE
        self._unused.append(row)
        self._rank = None
        self.touch(row)

    def set_schedulable(self, row: int, schedulable: bool) -> None:
        """Cordon a node, or lift the cordon."""
        if bool(self.schedulable[row]) != schedulable:
            self.schedulable[row] = schedulable
            self.touch(row)

    def set_free(
        self, row: int, *, milli_cpu: int, memory_bytes: int, device_free: Sequence[int]
    ) -> None:
        """State what a node has free; numbers may be negative where it is over-committed."""
        self.free_milli_cpu[row] = milli_cpu
        self.free_memory_bytes[row] = memory_bytes
        self.device_free[row, : len(device_free)] = device_free
        self._sum_devices(row, self.device_free[row].tolist())

    def take(self, row: int, request: Request, devices: Sequence[int] = ()) -> None:
        """Give a request its share of a node: CPU, memory, and these device slots.

        Raises:
            OverCommitError: the node has not that much; nothing is taken then.
        """
        free = self.device_free[row].tolist() if devices else ()
        enough = (
            self.free_milli_cpu[row] >= request.milli_cpu
            and self.free_memory_bytes[row] >= request.memory_bytes
            and len(set(devices)) == request.accelerators
            and all(free[slot] >= request.accelerator_milli for slot in devices)
        )
        if not enough:
            raise OverCommitError(f"node {self.names[row]!r} has no room for {request}")
        self._move(row, request, devices, -1)

    def give(self, row: int, request: Request, devices: Sequence[int] = ()) -> None:
        """Return what `take` took.

        Raises:
            OverCommitError: the node would have more free than it has at all.
        """
        free = self.device_free[row]
        fits = (
            self.free_milli_cpu[row] + request.milli_cpu <= self.total_milli_cpu[row]
            and self.free_memory_bytes[row] + request.memory_bytes <= self.total_memory_bytes[row]
            and all(
                free[slot] + request.accelerator_milli <= WHOLE_DEVICE_MILLI for slot in devices
            )
        )
        if not fits:
            raise OverCommitError(f"node {self.names[row]!r} never held {request}")
        self._move(row, request, devices, 1)

    def _move(self, row: int, request: Request, devices: Sequence[int], sign: int) -> None:
        self.free_milli_cpu[row] += sign * request.milli_cpu
        self.free_memory_bytes[row] += sign * request.memory_bytes
        if devices:
            free = self.device_free[row].tolist()
            for slot in devices:
                free[slot] += sign * request.accelerator_milli
            self.device_free[row] = free
            self._sum_devices(row, free)
        else:
            self.touch(row)

    def _sum_devices(self, row: int, free: list[int]) -> None:
        self.free_accelerator_milli[row] = sum(free)
        self.whole_devices[row] = free.count(WHOLE_DEVICE_MILLI)
        self.largest_device_milli[row] = max(free)
        self.touch(row)

    def touch(self, row: int) -> None:
        """Note that something about a row changed, so that what was cached of it is made anew."""
        self.changes.add(row, self.capacity)
