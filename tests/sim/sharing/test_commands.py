"""What ``penstock sim sharing`` prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.sim.commands import sim
from penstock.sim.sharing import experiment


def printed(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(sim, ["sharing", "--json", *arguments])
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if all(goal["ok"] for goal in found["goals"]) else 1)
    return found


def test_the_rules_of_a_small_group(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the picture is drawn with it")
    picture = tmp_path / "rules.svg"
    found = printed("--jobs", "2", "--plot", str(picture))
    assert [row["speeds"] for row in found["rows"]] == list(experiment.KINDS)
    assert {"lost", "repeated", "slowdown of the fastest"} <= {g["name"] for g in found["goals"]}
    assert "<svg" in picture.read_text()


def test_figures_and_dollars_of_tf_data_service() -> None:
    found = printed("--figure", "9,10")
    assert [row["dollars"] for row in found["dollars"]] == [80.23, 31.2, 9.43]
    assert [row["shared"] for row in found["figure_10"]] == [1.0] * 5
    assert [row["dedicated"] for row in found["figure_10"]] == [1, 2, 4, 8, 16]
    near = {row["workers"]: abs(row["error"]) for row in found["figure_9"]}
    assert max(near[workers] for workers in (8, 64, 128, 512, 640)) <= 0.05


def test_steps_of_like_length() -> None:
    rows = {row["model"]: row for row in printed("--figure", "11")["figure_11"]}
    assert rows["M7"]["published"] == 3.5
    assert all(row["speedup"] >= 1.5 for row in rows.values())


def test_tables_of_coordl() -> None:
    found = printed("--coordl")
    assert [row["misses"] for row in found["misses"]] == [0.35, 0.717, 1.0]
    by_jobs = {row["jobs"]: row["gigabytes"] for row in found["read"]}
    assert by_jobs["shared"] == 550
    assert by_jobs["each alone"] > 3500


def test_eight_like_members_ask_for_what_one_asks_for() -> None:
    rows = {row["members"]: row for row in printed("--demand")["demand"]}
    assert rows[8]["planned"] == rows[1]["planned"]
    assert rows[8]["summed"] == 8 * rows[1]["planned"]


def test_a_missed_goal_ends_the_command_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_SLOWDOWN_GOAL", -1.0)
    result = CliRunner().invoke(sim, ["sharing", "--jobs", "2"])
    assert result.exit_code == 1
    assert "MISSED" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--figure", "8"), "numbers of 9, 10, 11"),
        (("--figure", "nine"), "numbers of 9, 10, 11"),
        (("--jobs", "1"), "numbers of 2 to 256"),
        (("--coordl", "--demand"), "one of --figure"),
        (("--demand", "--plot", "a.svg"), "--plot draws"),
    ],
)
def test_bad_options_are_named(arguments: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(sim, ["sharing", *arguments])
    assert result.exit_code == 2
    assert problem in result.output
