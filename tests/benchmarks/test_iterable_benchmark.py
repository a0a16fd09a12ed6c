"""The benchmark that kills the makers of streams, cut short."""

from __future__ import annotations

import json

import pytest

from benchmarks import iterable


def test_the_program_knows_nothing_of_penstock() -> None:
    assert "penstock" not in iterable.SCRIPT.read_text().lower()


@pytest.mark.slow
def test_a_short_run_counts_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--epochs=1", "--files=6", "--samples=40", "--seconds=0.005", "--pause=1"]
    code = iterable.main(["--kinds=tar", "--least-kills=0", "--json", "--seed=4", *sizes])
    found = json.loads(capsys.readouterr().out)
    [row] = found["rows"]
    assert (row["lost"], row["repeated"], row["order_as_alone"]) == (0, 0, True), row
    assert (code, found["seed"]) == (0, 4)


def test_a_lost_sample_is_a_missed_goal() -> None:
    row = {
        "dataset": "tar",
        "lost": 1,
        "repeated": 0,
        "order_as_alone": True,
        "killed_data_workers": 3,
        "killed_local_workers": 1,
    }
    goals = {goal.name: goal.ok for goal in iterable.goals_of([row], 2)}
    assert not goals["no sample is lost"]
    assert not goals["tar: local_workers killed"]
    assert goals["no sample is repeated"]
    assert goals["order as alone"]
