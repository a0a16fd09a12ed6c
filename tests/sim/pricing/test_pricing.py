"""What ``penstock sim pricing`` shows, and what it refuses."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from penstock.brain.pricing.problem import Prices
from penstock.sim.commands import sim
from penstock.sim.pricing.experiment import planned_alone, priced_jobs, room_of, row_of
from penstock.sim.pricing.jobs import random_job

PRICES = Prices(core_hour=0.03, gib_hour=0.004, accelerator_hour=2.4)


def test_the_command_compares_both_plans_and_says_what_was_missed() -> None:
    result = CliRunner().invoke(
        sim, ["pricing", "--jobs=10", "--small=2", "--processes=1", "--json"]
    )
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if all(goal["ok"] for goal in found["goals"]) else 1)
    assert [row["capacity"] for row in found["rows"]] == [1.0, 0.75, 0.5, 0.33] * 2
    assert all(row["running"] == 10 for row in found["rows"]), "no job is starved"
    assert {one["wanted"] for one in found["small"]} == {"most work", "least cost"}


def test_a_negative_price_is_refused() -> None:
    result = CliRunner().invoke(sim, ["pricing", "--core-hour=-1"])
    assert result.exit_code == 2
    assert "prices.core_hour = -1.0: must be a number of at least 0" in result.output


def test_the_same_work_costs_less_together_than_alone() -> None:
    jobs = [random_job(index, 3, PRICES) for index in range(1, 81, 2)]
    row = row_of(jobs, "price", 0.5, 3)
    assert row.saved >= 0.2
    assert row.work >= row.alone_work
    assert row.alone_running < row.running == 40


def test_alone_no_more_is_given_than_there_is() -> None:
    jobs = [random_job(index, 3, PRICES) for index in range(1, 41, 2)]
    room = room_of(jobs, 0.5)
    chosen = planned_alone(jobs, priced_jobs(jobs, "share", 3), room)
    assert room.capacity is not None
    used = [option.resources.amounts() for option in chosen if option]
    totals = [sum(column) for column in zip(*used, strict=True)]
    assert all(own <= most for own, most in zip(totals, room.capacity.amounts(), strict=True))
