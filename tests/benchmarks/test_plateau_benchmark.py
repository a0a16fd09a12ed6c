"""The benchmark of plateaus, on a few jobs."""

from __future__ import annotations

from benchmarks import plateau


def test_a_bounded_job_with_servers_gives_back_what_brings_nothing() -> None:
    row = plateau.parameter_servers(6, 5)
    assert row.speed >= plateau.FULL
    assert row.ratio <= 1.25, "the whole quota is over three times the least"
    assert row.changes <= 5


def test_bounded_all_reduce_jobs_settle_near_the_least_count() -> None:
    rows = [plateau.all_reduce(job, 1) for job in range(2, 5)]
    assert all(row.speed >= 0.95 and row.ratio <= 1.15 for row in rows), rows
    without = [plateau.all_reduce(job, 1, without=True) for job in range(2, 5)]
    assert max(row.ratio for row in without) > 1.15 or min(row.speed for row in without) < 0.9


def test_goals_name_what_was_missed() -> None:
    row = plateau.Row("AllReduce", 0, 0.9, 10, 12, 1.2, 7, 6)
    assert [goal.ok for goal in plateau.goals_of([row])] == [False] * 5
