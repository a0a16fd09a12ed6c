"""The openb trace: nodes and pods of a production GPU cluster, and the results FGD published on it.

Alibaba cluster-trace-gpu-v2023 as it comes with the FGD artifact (Weng et al., ATC 2023).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.scheduler.request import WHOLE_DEVICE_MILLI, Request
from penstock.sim.traces.shapes import NodeShape
from penstock.sim.traces.table import TraceRow, read_rows

SOURCE: Final = (
    "the openb trace (Alibaba cluster-trace-gpu-v2023, in github.com/alibaba/clusterdata, "
    "with the results of the FGD artifact, github.com/hkust-adsl/kubernetes-scheduler-simulator)"
)
GPU_NODES: Final = "openb_node_list_gpu_node.csv"
PUBLISHED: Final = "fgd_expected_alloc_ratio.csv"

_MEBIBYTE: Final = 1024 * 1024


def pod_list(workload: str) -> str:
    """The file with the pods of a workload, such as ``default`` or ``multigpu20``."""
    return f"openb_pod_list_{workload}.csv"


def workloads(folder: Path) -> tuple[str, ...]:
    """The workloads that a folder has pod lists of."""
    prefix, suffix = pod_list("*").split("*")
    names = (path.name for path in folder.glob(pod_list("*")))
    return tuple(sorted(name.removeprefix(prefix).removesuffix(suffix) for name in names))


def read_nodes(path: Path) -> list[NodeShape]:
    """The nodes of a node list.

    Raises:
        TraceError: see `penstock.sim.traces.table`; also for two nodes of one name.
    """
    nodes: dict[str, NodeShape] = {}
    for row in read_rows(path, ("sn", "cpu_milli", "memory_mib", "gpu"), SOURCE):
        name = row.text("sn")
        if not name:
            raise row.error("sn", "must name the node")
        if name in nodes:
            raise row.error("sn", "is there twice")
        nodes[name] = NodeShape(
            name=name,
            milli_cpu=row.integer("cpu_milli"),
            memory_bytes=row.integer("memory_mib") * _MEBIBYTE,
            accelerators=row.integer("gpu", default=0),
            model=row.text("model"),
        )
    return list(nodes.values())


def read_pods(path: Path) -> list[Request]:
    """The pods of a pod list, as the requests that they make, in the order of the file."""
    columns = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    return [_request(row) for row in read_rows(path, columns, SOURCE)]


def _request(row: TraceRow) -> Request:
    count = row.integer("num_gpu", default=0)
    milli = row.integer("gpu_milli", default=0)
    if count and not 1 <= milli <= WHOLE_DEVICE_MILLI:
        raise row.error("gpu_milli", f"must be from 1 to {WHOLE_DEVICE_MILLI}")
    if count > 1 and milli < WHOLE_DEVICE_MILLI:
        raise row.error("gpu_milli", "must be 1000 where num_gpu is more than 1")
    return Request(
        milli_cpu=row.integer("cpu_milli"),
        memory_bytes=row.integer("memory_mib") * _MEBIBYTE,
        accelerators=count,
        accelerator_milli=milli if count else WHOLE_DEVICE_MILLI,
        accelerator_kinds=tuple(filter(None, row.text("gpu_spec").split("|"))) if count else (),
    )


@dataclass(frozen=True, slots=True)
class Published:
    """Percent of the cluster's GPUs allocated when N percent have arrived: mean of ten seeds."""

    mean: Mapping[int, float]


def read_published(path: Path) -> dict[tuple[str, str], Published]:
    """What the artifact reports, by workload and policy (in lower case: random, bestfit, fgd)."""
    series: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rows(path, ("workload", "sc_policy", "80", "100", "130"), SOURCE):
        workload = row.text("workload").removeprefix("openb_pod_list_")
        policy = row.text("sc_policy").partition("-")[2].lower()
        for arrived in (column for column in row.cells if column.isdigit()):
            series[workload, policy][int(arrived)].append(row.number(arrived))
    return {
        key: Published({arrived: statistics.fmean(values) for arrived, values in curve.items()})
        for key, curve in series.items()
    }
