"""The benchmark of many jobs: what a job costs, what follows for more of them, and its goals."""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import Any
from unittest.mock import Mock

import pytest

from benchmarks import brain_replicas
from benchmarks.postgres import PostgresMissingError
from benchmarks.scale import beyond, goals_of, measure, per_job

SMALL: dict[str, Any] = {"shards": 4, "jobs": 400, "rss_mb": 100.0, "cpu_seconds": 8.0}
LARGE: dict[str, Any] = {"shards": 4, "jobs": 1_200, "rss_mb": 120.0, "cpu_seconds": 20.0}
REACHED: dict[str, Any] = {
    **LARGE,
    "pods_made_twice": 0,
    "steady_p99_seconds": 2.0,
    "takeover_seconds": 15.0,
}


def test_what_a_job_costs_is_told_by_two_sizes() -> None:
    each = per_job([SMALL, LARGE])
    assert each == {"rss_kb": 102.4, "cpu_milliseconds": 15.0}
    assert per_job([LARGE]) is None
    assert beyond(LARGE, each, 10_000) == {
        "jobs": 10_000,
        "rss_mb": pytest.approx(340.0),
        "cpu_seconds": pytest.approx(152.0),
        "cpu_seconds_of_a_shard": pytest.approx(38.0),
    }


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("pods_made_twice", 1),
        ("rss_mb", 1025.0),
        ("steady_p99_seconds", 2.1),
        ("takeover_seconds", 15.1),
    ],
)
def test_each_goal_can_be_missed(name: str, got: float) -> None:
    assert all(goal.ok for goal in goals_of([REACHED]))
    missed = [goal.name for goal in goals_of([{**REACHED, name: got}]) if not goal.ok]
    assert missed == [f"{name}, 1200 jobs"]


@pytest.mark.e2e
@pytest.mark.slow
def test_every_phase_ends_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    row = asyncio.run(measure(4, 2, shards=2, seed=0, steady_jobs=1))
    assert row["pods"] == 4 * 3
    assert row["pods_made_twice"] == 0
    assert row["steady_p99_seconds"] > 0
    assert row["takeover_seconds"] > 0
    named = [line.split(" s: ")[1] for line in capsys.readouterr().err.splitlines()]
    assert named == [
        "the server's own speed, 5 s",
        "3 controllers start",
        "2 shards find their holders",
        "12 pods at once, and until nothing more is asked for",
        "1 more, two a second",
        "a holder is killed",
        "the controllers end",
    ]


BRAINS: dict[str, Any] = {
    "replicas": 2,
    "jobs": 1_000,
    "samples_lost": 0,
    "samples_p99_ms": 100.0,
    "memory_mb": 500.0,
    "calls_seconds": 15.0,
    "administrators_seconds": 15.0,
}


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("samples_lost", 1),
        ("samples_p99_ms", 100.1),
        ("memory_mb", 501.0),
        ("calls_seconds", 15.1),
        ("administrators_seconds", 15.1),
    ],
)
def test_each_goal_of_the_brains_can_be_missed(name: str, got: float) -> None:
    assert all(goal.ok for goal in brain_replicas.goals_of(BRAINS))
    missed = [goal.name for goal in brain_replicas.goals_of({**BRAINS, name: got}) if not goal.ok]
    assert missed == [f"{name}, 2 Brains, 1000 jobs"]


def test_a_dead_brain_is_called_until_it_is_no_endpoint_any_more() -> None:
    rng = random.Random(1)
    senders = brain_replicas.Senders([Mock(), Mock(), Mock()], endpoints_seconds=5)
    for killed_at, chosen in (
        (math.inf, {0, 1, 2}),
        (time.monotonic(), {0, 1, 2}),
        (time.monotonic() - 6, {1, 2}),
    ):
        senders.killed_at = killed_at
        assert {senders._endpoint(rng) for _ in range(100)} == chosen


@pytest.mark.e2e
@pytest.mark.slow
def test_a_killed_brain_costs_no_sample_and_the_other_takes_its_jobs() -> None:
    try:
        row = asyncio.run(
            brain_replicas.measure(10, 2, seconds=2, after=8, interval=0.5, ranks=2, within=40)
        )
    except PostgresMissingError as error:
        pytest.skip(str(error))
    assert row["samples"] > 100
    assert row["samples_lost"] == 0
    assert row["sent_again"] > 0, "calls of the dead replica failed"
    assert 0 < row["calls_seconds"] < brain_replicas.GIVE_UP_SECONDS
    assert row["administrators_seconds"] > 0
    assert row["memory_mb"] > row["memory_without_executors_mb"] / 2 > 10
