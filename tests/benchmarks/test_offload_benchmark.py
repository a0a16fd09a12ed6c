"""The benchmark of shares: which cases it has, what its judge says, and that a case runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.goals import Goal
from benchmarks.offload import chosen_plan, goals_of, measure
from benchmarks.offloading import figures
from benchmarks.offloading.cases import ENVIRONMENTS, FASTFLOW, FIGURE_6, SWEPT
from benchmarks.offloading.harmful import HARMFUL
from benchmarks.offloading.judging import OURS, Case, Times, fastflow_share, row_of
from benchmarks.offloading.machine import Run


def test_a_third_of_the_cases_are_real() -> None:
    cases = [one for _, workloads in SWEPT.pairs for one in workloads]
    assert len(cases) == 24
    assert len({one.name for one in cases}) == 8
    assert 3 * sum(one.kind == "real" for one in cases) >= len(cases)
    assert sum(len(workloads) for _, workloads in FIGURE_6.pairs) == 42
    assert sum(len(workloads) for _, _, workloads in HARMFUL) == 20
    assert len({reason for reason, _, _ in HARMFUL}) == 4


def test_some_cases_can_be_chosen() -> None:
    plan = chosen_plan(SWEPT, "T in 7:21;jpeg", "permits,real")
    names = [(place.name, one.name) for place, workloads in plan.pairs for one in workloads]
    assert names[0] == ("7:21", "T")
    assert {name for _, name in names[1:]} == {"jpeg"}
    assert not chosen_plan(SWEPT, "jpeg", "permits").pairs


def a_case(ours: float, theirs: float, best: float) -> Case:
    alone = Run(100.0, 0.6, 0.0, 0.001, 0.02, 2)
    case = Case(FASTFLOW["S"], ENVIRONMENTS["7:7"], alone=alone, remote=replace(alone, rate=90.0))
    case.swept = {step / 10: 100.0 + step for step in range(11)}
    case.finals = {OURS: [ours], 0.5: [best], fastflow_share(case): [theirs]}
    case.made_remote = [0.5]
    return case


def test_fastflow_gets_the_figures_of_the_calibration() -> None:
    # G is 250 a second; the remote side cannot make what is missing: R / (L + R).
    assert fastflow_share(a_case(1, 1, 1)) == pytest.approx(90 / 190)


def judged(*rows: dict[str, Any]) -> dict[str, Goal]:
    return {goal.name: goal for goal in goals_of(list(rows))}


def test_a_loss_beyond_the_goal_is_a_missed_goal() -> None:
    good, bad = row_of(a_case(198.0, 180.0, 200.0)), row_of(a_case(150.0, 190.0, 200.0))
    assert good["loss"] == pytest.approx(200 / 198 - 1, abs=1e-4)
    assert all(goal.ok for goal in judged(good).values())
    missed = {name for name, goal in judged(good, bad).items() if not goal.ok}
    assert {"all: within 3 % of the best", "all: worst loss"} <= missed


def test_figure_6_is_held_to_what_the_paper_says() -> None:
    row = {"workload": "S", "environment": "7:28", "rate": 420.0, "alone_rate": 100.0}
    row |= {"chosen_workers": 8}
    assert all(goal.ok for goal in figures.shape_goals([row]))
    moved = {**row, "workload": "M"}
    assert [goal.got for goal in figures.shape_goals([moved])] == [["M in 7:28"], []]


def test_a_cut_is_never_worse_than_the_thin_link_makes_the_whole_batch() -> None:
    times = figures.cut_times(FASTFLOW["T"], "7:PRD")
    assert times["nothing"] == 1.0
    assert len(times) >= 4
    assert all(0 < one <= 1.0 + 1e-9 for one in times.values())


@pytest.mark.slow
def test_a_case_is_swept_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.offloading.judging.SHARES", (0.0, 0.5))
    short = Times(sweep=0.3, final=0.3, rounds=1)
    place = ENVIRONMENTS["7:7"]
    rows = asyncio.run(measure(place, [FASTFLOW["S"]], short, 1, swept=True))
    (row,) = rows
    assert len(row["sweep"]) == 2
    assert row["loss"] >= 0
    assert row["alone_rate"] < row["best_rate"]
    figures.draw_figures([{**row, "sweep": [1.0] * 11}], tmp_path, figure_6=False)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"figure-{number}.png" for number in (8, 9, 10)
    }
