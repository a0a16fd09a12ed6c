from __future__ import annotations

from pathlib import Path

from penstock.scheduler.request import Request
from penstock.sim.traces.alibaba import read_dlrm_pods, read_spot_nodes


def test_spot_nodes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,4,128,7\n")
    (node,) = read_spot_nodes(path)
    assert (node.name, node.milli_cpu, node.accelerators) == ("node-00007", 128_000, 4)


def test_dlrm_instances_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text("cpu_request,gpu_request,memory_request\n12,1,120.0\n0.5,0,1\n")
    gib = 1024**3
    assert read_dlrm_pods(path) == [Request(12_000, 120 * gib, 1), Request(500, gib)]
