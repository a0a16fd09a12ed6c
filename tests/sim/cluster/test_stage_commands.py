"""``penstock sim table4``, ``tuning --stages`` and ``fragments``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.sim.cluster.experiments import fragments, table4, table5
from penstock.sim.cluster.experiments.training import Approach, Cluster
from penstock.sim.cluster.job_mix import Model, TrainingJob
from penstock.sim.commands import sim
from tests.sim.cluster.test_commands import write_traces

RUNNER = CliRunner()


def run(*arguments: str) -> Any:
    result = RUNNER.invoke(sim, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_table4_is_as_published_and_one_more_gpu_is_chosen_unasked() -> None:
    found = run("table4")
    assert found["chosen"]["added_gpus"] == 1
    assert all(goal["ok"] for goal in found["goals"])
    multi = [row for row in found["results"] if row["stages"] == "multi"]
    assert [row["speed"] for row in multi] == [1.43] * 3
    for row in multi:
        assert abs(row["saving"] - row["published_saving"]) <= 0.01


def test_a_gpu_that_is_not_enough_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table4, "unique_speed", lambda gpus: 0.6 * gpus)
    assert table4.chosen()[0] == 3


def test_stages_are_tuned_within_twelve_intervals(tmp_path: Path) -> None:
    picture = tmp_path / "stages.png"
    found = run("tuning", "--stages", "2", "--jobs", "200", "--plot", str(picture))
    assert all(goal["ok"] for goal in found["goals"])
    assert found["seed"] == 1
    assert picture.stat().st_size > 0


def test_one_stage_is_the_papers_job() -> None:
    assert run("tuning")["results"][-1]["stage"] == "Tuned"


def test_a_missed_goal_is_named_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table4, "MOST", 1.2)
    result = RUNNER.invoke(sim, ["table4"])
    assert result.exit_code == 1
    assert "missed: multi 4+1: speed" in result.output


def test_fragments_counts_machines_and_draws(tmp_path: Path) -> None:
    write_traces(tmp_path)
    options = ("--workloads", "tiny", "--policies", "bestfit", "--load", "0.3", "--seeds", "1")
    result = RUNNER.invoke(sim, ["fragments", "--traces", str(tmp_path), *options])
    assert result.exit_code == 2, "it names the file that is missing"
    assert "philly" in result.output
    jobs = [f"2017-10-09 07:0{number}:00,600,{1 + number % 3}" for number in range(9)]
    header = "timestamp,duration,num_gpus"
    (tmp_path / "philly_sia_pollux.csv").write_text("\n".join([header, *jobs, ""]))
    picture = tmp_path / "fragments.png"
    found = run("fragments", "--traces", str(tmp_path), *options, "--plot", str(picture))
    assert found["machines"][0]["published"] == [0.31, 0.18]
    assert [row["load"] for row in found["queueing"]] == [0.3] * 3
    assert picture.stat().st_size > 0


def test_a_machine_without_cpu_and_with_gpus_is_counted() -> None:
    from penstock.scheduler.request import Request
    from penstock.sim.cluster.experiments.fgd import Workload
    from penstock.sim.traces.shapes import NodeShape

    nodes = tuple(NodeShape(f"n{number}", 8_000, 1 << 40, 4, "T4") for number in range(2))
    hungry = Request(milli_cpu=4_000, accelerators=1)
    found = fragments.machines(Workload("hungry", nodes, (hungry,)), "bestfit", [1])
    assert (found.no_cpu, found.no_gpu) == (1.0, 0.0)
    assert found.values == (-0.5, -0.5)
    modest = Request(milli_cpu=100, accelerators=1)
    found = fragments.machines(Workload("modest", nodes, (modest,)), "bestfit", [1])
    assert (found.no_cpu, found.no_gpu) == (0.0, 1.0)


def test_time_in_the_queue_is_for_what_the_first_job_lacks() -> None:
    hungry, modest = Model("hungry", 32_000), Model("modest", 1_000)

    def share(first: Model, gpus: int) -> float:
        jobs = [
            TrainingJob("a", 0.0, 100.0, gpus, first),
            TrainingJob("b", 0.0, 100.0, 2, hungry),
        ]
        return Cluster(Approach(table5.BASELINE), 1, 4, 64_000).run(jobs).cpu_wait_share

    assert share(hungry, 2) == 1.0
    assert share(modest, 4) == 0.0
