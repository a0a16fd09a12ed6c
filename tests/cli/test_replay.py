"""``penstock capacity --policy``: what is printed, and what is refused before anybody is asked."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.replay import headline, notes, shown
from penstock.wire import ClusterReplay


def figure(before: float, after: float, low: float, high: float) -> dict[str, Any]:
    same = {"low": before, "high": before}
    return {
        "before": {"value": before, **same},
        "after": {"value": after, **same},
        "change": {"value": after - before, "low": low, "high": high},
    }


def answer(**changes: Any) -> ClusterReplay:
    nothing = figure(0, 0, 0, 0)
    about: dict[str, Any] = {
        "start": 1_000_000,
        "end": 1_604_800,
        "policy_before": "stranding",
        "policy": "most",
        "jobs": 212,
        "ended": 200,
        "running_before": 3,
        "never": 0,
        "silent": 0,
        "earlier": 4,
        "later": 9,
        "repetitions": 8,
        "mean_wait_seconds": figure(180, 240, 30, 95),
        "median_wait_seconds": nothing,
        "most_wait_seconds": nothing,
        "waited_jobs": figure(10, 7, -4, 1),
        "mean_completion_seconds": nothing,
        "median_completion_seconds": nothing,
        "stranded_accelerators": figure(3.25, 4, 0.5, 1),
        "free_accelerators": nothing,
        "recorded_mean_wait_seconds": 200,
        "recorded_stranded_accelerators": 3.5,
        "notes": ["both columns are replays"],
    }
    return ClusterReplay.model_validate(about | changes)


def test_both_policies_are_shown_with_the_difference_and_its_range() -> None:
    stream = io.StringIO()
    Console(file=stream, width=160, no_color=True).print(shown(answer()))
    rows = [line.split() for line in stream.getvalue().splitlines()]
    assert ["FIGURE", "STRANDING", "MOST", "CHANGE", "FROM", "TO"] in rows
    assert ["mean", "wait", "3m", "4m", "+60s", "+30s", "+95s"] in rows
    assert ["jobs", "that", "wait", "10", "7", "-3", "-4", "+1"] in rows
    assert ["median", "wait", "0s", "0s", "0s", "0s", "0s"] in rows


def test_the_headline_says_whom_it_would_have_helped() -> None:
    assert headline(answer()) == (
        "212 jobs of the last 7 days with most instead of stranding: 4 start earlier and 9 later "
        "by more than a minute."
    )
    none = headline(answer(earlier=0, later=0, end=1_036_000))
    assert "of the last 10 hours" in none
    assert "none starts earlier or later" in none


def test_what_was_recorded_stands_beside_what_was_replayed() -> None:
    recorded, ranges, *others = notes(answer())
    assert "a mean wait of 3m20s" in recorded
    assert "3.5 accelerators stranded" in recorded
    assert "8 repetitions" in ranges
    assert others == ["both columns are replays"]
    assert "stranded" not in notes(answer(recorded_stranded_accelerators=None))[0]


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("capacity", ["--policy", "most", "--nodes", "+1"], "ask it alone"),
        ("capacity", ["--hours", "24"], "say --policy, too"),
        ("capacity", ["--policy", "m" * 40], "at most 32 characters"),
        ("capacity", ["--policy", "most", "--hours", "0"], "--hours"),
        ("whatif", ["--policy", " "], "--policy"),
        ("whatif", ["--policy", "most", "--fail-node", "a"], "ask it alone"),
        ("whatif", ["profile.json", "--policy", "most"], "ask of one thing"),
    ],
)
def test_what_makes_no_sense_is_refused(command: str, words: list[str], said: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "penstock.cli", command, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 2, found.stderr
    assert said in found.stderr
