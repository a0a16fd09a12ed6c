"""Snapshots from complete lists, and as plain values, to be held against each other."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from penstock.scheduler.objects import Node, Pod
from penstock.scheduler.placement.holdings import Reservation
from penstock.scheduler.placement.snapshot import Snapshot
from penstock.scheduler.request import Request


def relisted(
    nodes: Iterable[Node], pods: Iterable[Pod] = (), reservations: Iterable[Reservation] = ()
) -> Snapshot:
    snapshot = Snapshot()
    for node in nodes:
        snapshot.upsert_node(node)
    for pod in pods:
        snapshot.upsert_pod(pod)
    for reservation in reservations:
        snapshot.reserve(reservation)
    return snapshot


def state(snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
    columns = snapshot.columns
    found = {}
    for name in columns:
        row = columns.row(name)
        kinds = columns.device_kind[row].tolist()
        devices = sorted(
            (columns.kinds.name(kind), milli)
            for kind, milli in zip(kinds, columns.device_free[row].tolist(), strict=True)
            if kind >= 0
        )
        found[name] = (
            bool(columns.schedulable[row]),
            int(columns.total_milli_cpu[row]),
            int(columns.free_milli_cpu[row]),
            int(columns.free_memory_bytes[row]),
            int(columns.free_accelerator_milli[row]),
            int(columns.whole_devices[row]),
            devices,
            bool(snapshot.eligible(Request().constraints, np.array([row]))[0]),
        )
    return found
