"""Alibaba's later GPU traces: the nodes of 2026 (spot GPU) and the instances of 2025 (DLRM).

They serve to confirm on other clusters and other demand what was chosen on openb. The node list has
no memory column, so memory limits nothing there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.scheduler.request import Request
from penstock.sim.traces.shapes import NodeShape
from penstock.sim.traces.table import TraceRow, read_rows

SPOT_NODES: Final = "alibaba_v2026_spot_node_info.csv"
SPOT_SOURCE: Final = "cluster-trace-v2026-spot-gpu (in github.com/alibaba/clusterdata)"
DLRM_INSTANCES: Final = "alibaba_gpu_v2025_dlrm.csv"
DLRM_SOURCE: Final = "cluster-trace-gpu-v2025 (in github.com/alibaba/clusterdata)"

_GIBIBYTE: Final = 1024**3
_UNLIMITED_BYTES: Final = 1 << 60


def read_spot_nodes(path: Path) -> list[NodeShape]:
    """Nodes with their GPUs and cores."""
    columns = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")
    return [
        NodeShape(
            name=f"node-{row.text('node_name').zfill(5)}",
            milli_cpu=1000 * row.integer("cpu_num"),
            memory_bytes=_UNLIMITED_BYTES,
            accelerators=row.integer("gpu_capacity_num", default=0),
            model=row.text("gpu_model"),
        )
        for row in read_rows(path, columns, SPOT_SOURCE)
    ]


def read_dlrm_pods(path: Path) -> list[Request]:
    """CPU and GPU instances of recommendation services, as requests (GPUs in whole ones)."""
    columns = ("cpu_request", "gpu_request", "memory_request")
    return [_instance(row) for row in read_rows(path, columns, DLRM_SOURCE)]


def _instance(row: TraceRow) -> Request:
    return Request(
        milli_cpu=round(1000 * row.number("cpu_request")),
        memory_bytes=round(_GIBIBYTE * row.number("memory_request", default=0.0)),
        accelerators=row.integer("gpu_request", default=0),
    )
