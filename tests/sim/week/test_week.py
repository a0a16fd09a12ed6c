"""Whole weeks, small: the same work in both runs, sums that agree, and what is printed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.sim.commands import sim
from penstock.sim.week.experiment import weeks
from penstock.sim.week.run import Regime, WeekRun, run_week
from penstock.sim.week.summary import cheaper, compare, rows
from penstock.sim.week.world.assumptions import VARIANTS, Assumptions, varied
from penstock.sim.week.world.bills import MOST_OFF, Given, balance

JOBS = 12
CALM = Assumptions(load=0.3, broken_share=0.0, short_memory=0.0)


@cache
def week(regime: Regime) -> WeekRun:
    return run_week(regime, JOBS, 1, CALM)


@pytest.mark.parametrize("regime", list(Regime))
def test_every_job_makes_its_steps_and_the_sums_agree(regime: Regime) -> None:
    run = week(regime)
    assert [one.index for one in run.outcomes] == list(range(JOBS))
    assert any(one.succeeded for one in run.outcomes)
    for one in run.outcomes:
        assert one.steps == pytest.approx(one.made_steps - one.lost_steps, rel=1e-6, abs=1e-3)
    used = math.fsum(one.used_core_seconds for one in run.outcomes)
    assert used <= run.totals.core_seconds
    assert run.totals.core_seconds == pytest.approx(run.node_core_seconds, rel=1e-9)
    assert run.totals.core_seconds <= run.node_capacity_core_seconds


@pytest.mark.parametrize("regime", list(Regime))
def test_bills_are_what_the_nodes_gave_to_training(regime: Regime) -> None:
    run = week(regime)
    assert len(run.bills) == JOBS
    assert run.balance.off_by < 1e-9
    assert run.balance.billed["core_seconds"] == pytest.approx(run.totals.core_seconds, rel=1e-9)
    cores = run.balance.parts["core_seconds"]
    assert math.fsum(cores.values()) == pytest.approx(run.node_capacity_core_seconds, rel=1e-9)
    assert min(cores.values()) >= 0
    assert cores["Used"] + cores["Repeated"] == pytest.approx(
        math.fsum(one.used_core_seconds for one in run.outcomes), rel=1e-9
    )


def test_a_pod_that_is_missing_in_the_bills_is_found() -> None:
    run = week(Regime.STATIC)
    dearest = max(run.bills, key=lambda one: one.core_seconds)
    rest = [one for one in run.bills if one is not dearest]
    services = Given(core_seconds=run.balance.parts["core_seconds"]["Others"])
    had = {"accelerator_seconds": 0.0, "free_accelerator_seconds": 0.0}
    for kind, parts in run.balance.parts.items():
        had |= {kind: math.fsum(parts.values()), f"free_{kind}": parts["Free"]}
    found = balance(rest, services, had)
    assert found.off_by >= dearest.core_seconds / run.totals.core_seconds - 1e-9
    assert found.off_by > MOST_OFF


def test_both_runs_do_the_same_work() -> None:
    pairs = zip(week(Regime.STATIC).outcomes, week(Regime.PENSTOCK).outcomes, strict=True)
    for static, penstock in pairs:
        assert (static.index, static.arrival, static.kind) == (
            penstock.index,
            penstock.arrival,
            penstock.kind,
        )
        if static.succeeded and penstock.succeeded:
            assert static.steps == pytest.approx(penstock.steps, rel=1e-5)


def test_the_real_parts_were_asked() -> None:
    counts = week(Regime.PENSTOCK).counts
    assert counts.reconcile > JOBS
    assert counts.brain >= JOBS
    assert {"history_create", "fitted_ps"} <= set(counts.algorithms)
    assert sum(counts.plans.values()) >= JOBS
    assert counts.administrator > counts.brain + counts.brain_reused


def test_a_run_is_the_same_again() -> None:
    assert run_week(Regime.STATIC, JOBS, 1, CALM).outcomes == week(Regime.STATIC).outcomes


def test_figures_stand_beside_the_published_ones() -> None:
    found = compare(week(Regime.STATIC), week(Regime.PENSTOCK), CALM)
    by_name = {row.figure: row for row in rows([found])}
    assert by_name["JCT, all jobs"].published == -0.31
    assert by_name["completion, static"].published == 0.89
    assert by_name["completion, static"].mean == found.static.completion
    assert 0 < found.static.cpu_utilisation < found.penstock.cpu_utilisation < 1


def test_without_prices_nothing_is_cheaper() -> None:
    free = replace(CALM, core_price=0.0, gib_price=0.0)
    found = compare(week(Regime.STATIC), week(Regime.PENSTOCK), free)
    assert cheaper(found) is None
    assert {row.figure: row for row in rows([found])}["cost of a completed job"].mean is None


def test_every_variant_is_another_world() -> None:
    for name, values in VARIANTS.items():
        assert all(varied(Assumptions(), name, value) != Assumptions() for value in values)


def test_sweeps_of_the_figures(tmp_path: Path) -> None:
    result = CliRunner().invoke(sim, ["week", "--figure", "1,6", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    workers = [
        row["steps_per_second"]
        for row in found["figure_1"]
        if (row["model"], row["swept"]) == ("wide-deep", "workers")
    ]
    assert workers == sorted(workers)
    used = [row["utilisation"] for row in found["figure_6"] if row["model"] == "wide-deep"]
    assert max(used) > 1.2 * sum(used) / len(used)


def test_every_assumption_is_printed_with_its_source() -> None:
    arguments = ["week", "--jobs", "10", "--json", "--processes", "1"]
    words = [f"--assume={name}" for name in ("load=0.3", "mean_steps=20000", "restarts=true")]
    result = CliRunner().invoke(sim, [*arguments, *words])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    told = {one["name"]: one for one in found["assumptions"]}
    assert told["mean_steps"]["value"] == 20_000.0
    assert told["restarts"]["value"] is True
    assert all(one["source"] for one in told.values())
    assert found["weeks"][0]["calls"]["reconcile"] > 0
    assert [one["ok"] for one in found["goals"]] == [True, True]


SHORT = ("week", "--jobs", "10", "--assume=load=0.3", "--assume=mean_steps=20000")


def test_progress_is_told_on_standard_error_where_it_is_asked_for() -> None:
    runner, words = CliRunner(), [*SHORT, "--json", "--processes", "1"]
    quiet, told = (runner.invoke(sim, [*words, *more]) for more in ((), ("--progress",)))
    assert quiet.exit_code == told.exit_code == 0
    assert quiet.stderr == ""
    lines = told.stderr.splitlines()
    for regime in Regime:
        days = [line for line in lines if line.startswith(f"seed 0, {regime}: day ")]
        assert [int(line.split("day ")[1].split(",")[0]) for line in days][:6] == list(range(1, 7))
    assert lines[-1].startswith("seed 0: ")
    one, two = (json.loads(result.stdout)["weeks"] for result in (quiet, told))
    assert one == two


def test_each_seed_is_printed_once_it_is_done_before_all_together() -> None:
    result = CliRunner().invoke(sim, [*SHORT, "--seeds", "2", "--processes", "1"])
    assert result.exit_code == 0
    places = [result.stdout.index(text) for text in ("assumptions", "seed 0: ", "seed 1: ")]
    assert places == sorted(places)
    assert places[-1] < result.stdout.index("a week of 10 jobs, seeds 0, 1")


def test_seeds_are_the_same_and_in_order_whatever_the_processes() -> None:
    assumed = varied(CALM, "mean_steps", 20_000.0)
    one, two = (list(weeks(10, range(2), [assumed], None, count)) for count in (1, 2))
    assert [found.seed for found in one] == [0, 1]
    assert one == two


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--jobs", "0"], "--jobs"),
        (["--seeds", "-1"], "--seeds"),
        (["--figure", "2"], "1, 3, 6"),
        (["--figure", "1", "--sensitivity"], "either"),
        (["--assume", "load"], "NAME=VALUE"),
        (["--assume", "load=-1"], "a number from 0"),
        (["--assume", "load=0"], "must be above 0"),
        (["--assume", "hot_share=2"], "must be from 0 to 1"),
        (["--assume", "services_share=1"], "must leave something"),
        (["--assume", "restarts=2"], "true or false"),
        (["--assume", "weather=1"], "no assumption is called"),
        (["--plot", "week.bmp"], "the suffix says the format, one of"),
        (["--plot", "nowhere/week.png"], "there is no folder"),
    ],
)
def test_what_is_refused(words: list[str], told: str) -> None:
    result = CliRunner().invoke(sim, ["week", *words])
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize("processes", ["1", "2"])
def test_missing_traces_are_named(tmp_path: Path, processes: str) -> None:
    arguments = ["week", "--jobs", "10", "--processes", processes, "--traces", str(tmp_path)]
    result = CliRunner().invoke(sim, arguments)
    assert result.exit_code == 2
    assert "alibaba_gpu_v2025_dlrm.csv is not there" in result.output
