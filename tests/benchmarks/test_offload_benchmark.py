"""The benchmark of shares: which cases it has, what its judge says, and that a case runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.goals import Goal
from benchmarks.offload import chosen_plan, goals_of, measure, run_plan, threshold_goals
from benchmarks.offloading import figures
from benchmarks.offloading.cases import ENVIRONMENTS, FASTFLOW, FIGURE_6, SWEPT, THRESHOLD
from benchmarks.offloading.harmful import HARMFUL
from benchmarks.offloading.judging import AGAIN, OURS, Case, Times, fastflow_share, judge, row_of
from benchmarks.offloading.machine import Run
from benchmarks.offloading.virtual import Clock, Permits, Process, Training, VirtualMachine


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


def test_by_what_the_best_differs_from_itself_is_the_yardsticks_noise() -> None:
    case = a_case(198.0, 180.0, 200.0)
    case.swept[0.5], case.finals[AGAIN] = 300.0, [190.0]
    row = row_of(case)
    assert row["noise"] == pytest.approx(200 / 190 - 1, abs=1e-4)
    assert row["loss"] == pytest.approx(200 / 198 - 1, abs=1e-4)
    goals = judged(row)
    assert goals["all: within 3 % of the best"].ok
    assert not goals["all: the best share beside itself, within 3 %"].ok


class Noisy(VirtualMachine):
    """Rates that differ."""

    def __init__(self, rates: list[float]) -> None:
        super().__init__(ENVIRONMENTS["7:7"], [], 0)
        self._rates = rates
        self.runs = 0

    async def run(self, name: str, share: float | None, seconds: float, *, half: int = 0) -> Run:
        self.runs += 1
        return Run(self._rates[self.runs % len(self._rates)], 0.5, 0.5, 0.0, 0.01, 2)


@pytest.mark.parametrize(("rates", "rounds"), [([100.0, 100.2], 2), ([80.0, 100.0, 120.0], 6)])
def test_what_differs_is_run_again(rates: list[float], rounds: int) -> None:
    case, machine = a_case(198.0, 180.0, 200.0), Noisy(rates)
    case.finals = {}
    asyncio.run(judge(machine, case, [0.5, AGAIN], Times()))
    assert [len(one) for one in case.finals.values()] == [rounds, rounds]
    assert machine.runs == 2 * rounds


def test_simulated_permits_are_given_out_in_turn() -> None:
    clock, permits, ends = Clock(), Permits(2), []

    def holds(seconds: float) -> Process:
        yield permits
        yield seconds
        clock.release(permits)
        ends.append(clock.now)

    for seconds in (3.0, 1.0, 1.0, 1.0):
        clock.start(holds(seconds))
    clock.run(10.0)
    assert ends == [1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(("workers", "share", "rate"), [(0, 0.0, 100.0), (2, 1.0, 100.0)])
def test_simulated_makers_are_as_fast_as_their_permits(
    workers: int, share: float, rate: float
) -> None:
    training = Training(ENVIRONMENTS["7:7"], FASTFLOW["S"], workers, share, seed=1)
    training.clock.run(10.0)
    assert training.taken / 10 == pytest.approx(rate, rel=0.03)
    assert training.remote in (0, training.taken)


@pytest.mark.parametrize("name", ["7:7", "7:PRD"])
def test_in_simulated_time_nothing_is_lost_that_can_be_had(name: str) -> None:
    times = Times(4.0, 4.0, 1)
    rows = asyncio.run(
        measure(ENVIRONMENTS[name], list(FASTFLOW.values())[:5], times, 1, swept=True, virtual=True)
    )
    assert len(rows) == 5
    assert max(row["loss"] for row in rows) <= 0.03
    assert max(row["noise"] for row in rows) <= 0.02


def test_a_gain_below_the_threshold_is_given_away_and_one_above_it_is_had() -> None:
    plan = chosen_plan(THRESHOLD, "8 %;14 %", "permits")
    rows = asyncio.run(run_plan(plan, Times(4.0, 4.0, 1), 1, swept=True, virtual=True))
    found = {row["workload"]: row for row in rows}
    assert (found["8 %"]["chosen_workers"], found["14 %"]["chosen_workers"]) == (0, 1)
    assert found["8 %"]["loss"] == pytest.approx(0.08, abs=0.02)
    assert all(goal.ok for goal in threshold_goals(rows))
    worse = [{**row, "loss": row["loss"] + 0.05} for row in rows]
    assert not any(goal.ok for goal in threshold_goals(worse))


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
