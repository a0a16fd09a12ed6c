from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.sim.commands import sim
from penstock.sim.offload import experiment
from penstock.sim.offload.experiment import OURS, OURS_FIRST, losses, summary


def test_our_rule_with_noise_is_nearer_to_the_best_than_fastflows_without() -> None:
    found = losses(200, 0.05, seed=3, processes=1)
    rows = {row.rule: row for row in summary(found)}
    assert rows[OURS].p90 <= 0.03
    assert rows[OURS].p90 < rows["FastFlow, as printed"].p90
    assert rows[OURS].within_3_percent > rows["FastFlow, its code"].within_3_percent
    assert rows[OURS].p99 < rows[OURS_FIRST].p99
    assert all(-0.01 <= value <= 1 for values in found.values() for value in values)


def test_without_noise_nothing_is_left_to_correct() -> None:
    rows = {row.rule: row for row in summary(losses(50, 0.0, seed=1, processes=1))}
    assert rows[OURS].median < 0.005


def test_a_seed_gives_the_same_jobs_in_any_number_of_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiment, "_CHUNK", 20)
    assert losses(40, 0.05, 7, processes=1) == losses(40, 0.05, 7, processes=2)


def test_the_command_prints_every_rule_and_its_goals(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the picture is drawn with it")
    picture = tmp_path / "losses.svg"
    result = CliRunner().invoke(
        sim, ["offload", "--cases", "60", "--seed", "2", "--json", "--plot", str(picture)]
    )
    printed = json.loads(result.stdout)
    assert [goal["name"] for goal in printed["goals"]] == [
        "p90 of the loss, corrected once",
        "p99 of the loss, corrected once",
    ]
    assert result.exit_code == (0 if all(goal["ok"] for goal in printed["goals"]) else 1)
    assert len(printed["rules"]) == 8
    assert "<svg" in picture.read_text()


def test_a_picture_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        sim, ["offload", "--cases", "5", "--plot", str(tmp_path / "none" / "a.png")]
    )
    assert result.exit_code == 2
