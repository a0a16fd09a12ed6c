from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.sim.cluster.arrivals import Filling
from penstock.sim.cluster.experiments.fgd import Run
from penstock.sim.cluster.show import fgd_panels
from penstock.sim.commands import sim
from penstock.sim.traces.openb import Published

RUNNER = CliRunner()


def run(*arguments: str) -> dict[str, list[dict[str, object]]]:
    result = RUNNER.invoke(sim, [*arguments, "--json"])
    assert result.exit_code == 0, result.stderr
    # The command's JSON has this shape.
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def write_traces(folder: Path) -> None:
    nodes = [f"n{index},64000,262144,{2 + 6 * (index % 2)},T4" for index in range(6)]
    header = "sn,cpu_milli,memory_mib,gpu,model"
    for name in ("openb_node_list_gpu_node.csv", "openb_node_list_all_node.csv"):
        (folder / name).write_text("\n".join([header, *nodes, ""]))
    pods = [
        f"p{index},{8000 + 8000 * (index % 3)},1024,1,{1000 - 500 * (index % 2)}"
        for index in range(40)
    ]
    pods += ["q,64000,1024,8,1000"] * 2
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
    (folder / "openb_pod_list_tiny.csv").write_text("\n".join([header, *pods, ""]))


def test_fgd_prints_one_result_per_policy_and_seed(tmp_path: Path) -> None:
    write_traces(tmp_path)
    results = run(
        "fgd",
        "--traces",
        str(tmp_path),
        "--workloads",
        "tiny",
        "--policies",
        "random,bestfit,fgd,stranding,spread,most",
        "--seeds",
        "2",
    )["results"]
    assert len(results) == 12
    assert list(results[0]) == [
        "workload",
        "policy",
        "seed",
        "allocated_at_80",
        "allocated_at_100",
        "allocated_at_130",
        "stranded_gpus",
    ]
    assert all(0 < float(str(result["allocated_at_130"])) <= 100 for result in results)


def test_the_same_seeds_give_the_same_numbers(tmp_path: Path) -> None:
    write_traces(tmp_path)
    arguments = ("fgd", "--traces", str(tmp_path), "--workloads", "tiny", "--seeds", "1")
    assert run(*arguments) == run(*arguments)


def test_the_table_and_the_picture(tmp_path: Path) -> None:
    write_traces(tmp_path)
    picture = tmp_path / "picture.png"
    arguments = ["fgd", "--traces", str(tmp_path), "--workloads", "tiny", "--seeds", "1"]
    result = RUNNER.invoke(sim, [*arguments, "--plot", str(picture)])
    assert result.exit_code == 0, result.stderr
    assert "stranded GPUs" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments",
    [["detach", "--workload", "tiny", "--seeds", "1"], ["table5", "--generated", "--seeds", "1"]],
)
def test_every_experiment_can_be_drawn(tmp_path: Path, arguments: list[str]) -> None:
    write_traces(tmp_path)
    picture = tmp_path / "picture.png"
    options = ["--traces", str(tmp_path), "--plot", str(picture)]
    if arguments[0] == "table5":
        options += ["--load", "0.3"]
    result = RUNNER.invoke(sim, [*arguments, *options])
    assert result.exit_code == 0, result.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_published_curves_are_drawn_beside_ours_of_the_same_name() -> None:
    filling = Filling({80: 80.0, 130: 90.0}, 0.0, 0)
    results = [(Run("default", name, 1, 0, 0, 0, 0), filling) for name in ("fgd", "stranding")]
    known = {("default", "fgd"): Published(dict.fromkeys(range(131), 95.0))}
    (panel,) = fgd_panels(results, known)
    assert [curve.label for curve in panel.curves] == ["fgd", "stranding", "fgd, published"]
    assert panel.curves[-1].beside == "fgd"


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "openb_pod_list_tiny.csv",
            "num_gpu",
            "gpus",
            "openb_pod_list_tiny.csv, line 1: no column",
        ),
        ("openb_pod_list_tiny.csv", "p1,16000", "p1,NaN", "line 3: cpu_milli='NaN': must be a fin"),
        (
            "openb_pod_list_tiny.csv",
            "p1,16000",
            "p1,-1",
            "line 3: cpu_milli='-1': must be at least",
        ),
        ("openb_node_list_gpu_node.csv", "n2,64000", "n2", "line 4: 4 cells, but the header has 5"),
        ("openb_node_list_gpu_node.csv", "n2,", "n1,", "line 4: sn='n1': is there twice"),
    ],
)
def test_a_broken_trace_is_named_by_file_and_line(
    tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    write_traces(tmp_path)
    path = tmp_path / file
    path.write_text(path.read_text().replace(old, new, 1))
    result = RUNNER.invoke(sim, ["fgd", "--traces", str(tmp_path), "--workloads", "tiny"])
    assert result.exit_code == 2
    assert file in result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["fgd", "detach"])
def test_a_cluster_without_accelerators_is_said(tmp_path: Path, command: str) -> None:
    write_traces(tmp_path)
    for name in ("openb_node_list_gpu_node.csv", "openb_node_list_all_node.csv"):
        (tmp_path / name).write_text("sn,cpu_milli,memory_mib,gpu,model\nn,64000,1024,0,\n")
    option = "--workloads" if command == "fgd" else "--workload"
    result = RUNNER.invoke(sim, [command, "--traces", str(tmp_path), option, "tiny"])
    assert result.exit_code == 2
    assert "no accelerators at all" in result.stderr


def test_detach_prints_before_and_after(tmp_path: Path) -> None:
    write_traces(tmp_path)
    result = run("detach", "--traces", str(tmp_path), "--workload", "tiny", "--share", "0.5")
    assert list(result) == ["baseline_cpu_idle_gpus", "cpu_idle_gpus", "allocated"]


def test_table5_needs_no_files_where_jobs_are_generated() -> None:
    results = run("table5", "--generated", "--seeds", "1", "--load", "0.3")["results"]
    assert len(results) == 7
    wanted = {"load", "policy", "jct_minutes", "gain", "queue_minutes", "gpu_allocation"}
    assert all(wanted <= set(result) for result in results)


def test_tuning_prints_the_trace() -> None:
    last = run("tuning")["results"][-1]
    assert (last["data_workers"], last["training_cores"]) == (3, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fgd", "--traces", "/nowhere"], "fetch the openb trace"),
        (["detach", "--traces", "/nowhere"], "fetch the openb trace"),
        (["table5", "--traces", "/nowhere"], "fetch the Philly trace"),
        (["fgd"], "with --traces; the workload 'generated' needs none"),
        (["detach"], "with --traces; the workload 'generated' needs none"),
        (["table5"], "with --traces; --generated needs none"),
        (["fgd", "--workloads", "generated", "--policies", "best"], "no policy is called 'best'"),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(
    arguments: list[str], message: str
) -> None:
    result = RUNNER.invoke(sim, arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_an_unknown_workload_lists_those_that_there_are(tmp_path: Path) -> None:
    write_traces(tmp_path)
    result = RUNNER.invoke(sim, ["fgd", "--traces", str(tmp_path), "--workloads", "big"])
    assert result.exit_code == 2
    assert "there are tiny, dlrm, generated" in result.stderr


@pytest.mark.parametrize("load", ["0", "-1", "nan", "x", ""])
def test_a_load_that_is_none_is_refused(load: str) -> None:
    result = RUNNER.invoke(sim, ["table5", "--generated", "--load", load])
    assert result.exit_code == 2
    assert "--load" in result.stderr
