"""Small clusters for tests."""

from __future__ import annotations

from penstock.scheduler.node_table import NodeTable
from penstock.scheduler.request import Request

GIBIBYTE = 1024**3


def columns_of(*nodes: tuple[str, int, int], memory_gib: int = 64) -> NodeTable:
    """Empty columns: name, cores and accelerators of each node."""
    columns = NodeTable(capacity=2, devices=2)
    for name, cores, accelerators in nodes:
        columns.add(
            name,
            milli_cpu=1000 * cores,
            memory_bytes=memory_gib * GIBIBYTE,
            devices=["gpu"] * accelerators,
        )
    return columns


def cores(count: int) -> Request:
    """A request for CPU alone."""
    return Request(milli_cpu=1000 * count)


def gpus(count: int, per_gpu: int = 1, milli: int = 1000) -> Request:
    """A request for accelerators and some cores for each."""
    return Request(milli_cpu=1000 * count * per_gpu, accelerators=count, accelerator_milli=milli)
