"""What ``penstock forecast`` prints, and refuses before it asks anybody."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli import forecast
from penstock.cli.exits import UsageError
from penstock.wire import Expected, Forecast


def expected(value: float, low: float | None = None, high: float | None = None) -> Expected:
    return Expected(
        value=value, low=low, high=high, jobs=12, level=["model", "dataset"], comparisons=40
    )


def test_figures_have_their_range_and_what_they_stand_on() -> None:
    found = Forecast(
        seconds=expected(5400, 3600, 9000),
        core_seconds=expected(7200 * 16),
        cost=expected(12.5, 10, 20),
        currency="EUR",
        finished_jobs=12,
    )
    stream = io.StringIO()
    Console(file=stream, width=100, no_color=True).print(forecast.figures(found))
    shown = stream.getvalue()
    assert "1h30m" in shown
    assert "2h30m" in shown
    assert "32.0" in shown
    assert "12.50" in shown
    assert "12 jobs of the same model and dataset" in shown
    assert "GPU-hours" not in shown


@pytest.mark.parametrize(
    ("budget", "said"), [("12", "more than"), ("15", "likely within"), ("20.5", "is within")]
)
def test_the_cost_is_held_against_the_budget(budget: str, said: str) -> None:
    found = Forecast(cost=expected(12.5, 10, 20), currency="EUR", finished_jobs=12)
    [note] = [line for line in forecast.notes(found, budget) if "budget" in line]
    assert said in note
    assert not [line for line in forecast.notes(found) if "budget" in line]
    unpriced = Forecast(finished_jobs=12)
    assert not [line for line in forecast.notes(unpriced, budget) if "the budget" in line]


def test_a_cost_without_a_range_is_likely_at_most() -> None:
    one = Forecast(cost=expected(12.5), currency="EUR", finished_jobs=1)
    assert forecast.notes(one, "20")[0].startswith("the cost is likely within")
    assert forecast.notes(one, "10")[0].startswith("the cost is likely more than")


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "seconds", "said"),
    [
        (-2, expected(60), "the deadline is past since 2h"),
        (-2, None, "the deadline is past since 2h"),
        (2, expected(5400, 3600, 7000), "would end before its deadline, which is in 2h"),
        (2, expected(5400, 3600, 9000), "would end likely before its deadline"),
        (2, expected(5400), "would end likely before its deadline"),
        (2, expected(9000, 3600, 9900), "would end likely after its deadline"),
        (2, expected(9000, 7300, 9900), "would end after its deadline"),
    ],
)
def test_the_time_is_held_against_the_deadline(
    hours: int, seconds: Expected | None, said: str
) -> None:
    found = Forecast(seconds=seconds, finished_jobs=1)
    [note] = [
        line
        for line in forecast.notes(found, None, NOW + timedelta(hours=hours), NOW)
        if "deadline" in line
    ]
    assert said in note


def test_of_a_deadline_nothing_is_said_where_nothing_is_known() -> None:
    nothing = forecast.notes(Forecast(finished_jobs=0), None, NOW + timedelta(hours=1), NOW)
    assert not [line for line in nothing if "deadline" in line]


def test_what_is_not_known_is_said() -> None:
    nothing = forecast.notes(Forecast(finished_jobs=0))
    assert "nothing is known of jobs like it" in nothing[0]
    assert "no prices" in nothing[1]
    one = Forecast(seconds=expected(60), currency="EUR", finished_jobs=1)
    assert "no range can be given" in forecast.notes(one)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Scale\n", "has 0 objects of kind ElasticJob"),
        ("kind: ElasticJob\napiVersion: penstock.dev/v1alpha1\nspec: {}\n", "Field required"),
    ],
)
def test_a_manifest_of_no_job_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        forecast._job(file)
