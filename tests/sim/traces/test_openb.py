from __future__ import annotations

from pathlib import Path

import pytest

from penstock.scheduler.request import Request
from penstock.sim.errors import BrokenTraceError
from penstock.sim.traces.openb import read_nodes, read_pods, read_published, workloads
from penstock.sim.traces.shapes import NodeShape

MIB = 1024 * 1024


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_nodes_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "n.csv", "sn,cpu_milli,memory_mib,gpu,model", "a,32000,64,2,T4", "b,1,1,0,"
    )
    assert read_nodes(path) == [
        NodeShape("a", 32_000, 64 * MIB, 2, "T4"),
        NodeShape("b", 1, MIB, 0, ""),
    ]


def test_pods_are_read_with_their_kinds(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec",
        "p0,8000,10,1,460,T4|V100",
        "p1,8000,10,0,0,",
        "p2,8000,10,2,1000,",
    )
    assert read_pods(path) == [
        Request(8000, 10 * MIB, 1, 460, ("T4", "V100")),
        Request(8000, 10 * MIB),
        Request(8000, 10 * MIB, 2),
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("p,8,8,1,0", "gpu_milli='0'"),
        ("p,8,8,1,1200", "gpu_milli='1200'"),
        ("p,8,8,2,500", "gpu_milli='500'"),
        ("p,,8,0,0", "cpu_milli=''"),
        ("p,8,-8,0,0", "memory_mib='-8'"),
    ],
)
def test_a_broken_pod_names_file_and_line(tmp_path: Path, row: str, problem: str) -> None:
    path = write(tmp_path / "p.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli", row)
    with pytest.raises(BrokenTraceError, match=rf"p\.csv, line 2: {problem}"):
        read_pods(path)


def test_a_node_without_a_name_or_there_twice_is_refused(tmp_path: Path) -> None:
    header = "sn,cpu_milli,memory_mib,gpu,model"
    with pytest.raises(BrokenTraceError, match="line 2: sn='': must name the node"):
        read_nodes(write(tmp_path / "n.csv", header, ",1,1,1,x"))
    with pytest.raises(BrokenTraceError, match="line 3: sn='a': is there twice"):
        read_nodes(write(tmp_path / "n.csv", header, "a,1,1,1,x", "a,1,1,1,x"))


def test_published_results_are_averaged_over_seeds(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.csv",
        "workload,sc_policy,seed,80,100,130",
        "openb_pod_list_default,06-FGD,42,80,95,96",
        "openb_pod_list_default,06-FGD,43,80,97,98",
    )
    published = read_published(path)["default", "fgd"]
    assert dict(published.mean) == {80: 80, 100: 96, 130: 97}


def test_workloads_are_what_the_folder_has(tmp_path: Path) -> None:
    write(tmp_path / "openb_pod_list_b.csv", "x")
    write(tmp_path / "openb_pod_list_a.csv", "x")
    assert workloads(tmp_path) == ("a", "b")
