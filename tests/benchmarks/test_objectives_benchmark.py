"""The benchmark of objectives, on a few jobs."""

from __future__ import annotations

from benchmarks import objectives


def test_each_objective_does_what_it_says() -> None:
    rows = [row for job in range(2) for row in objectives.compared(job, 1)]
    assert [row.mode for row in rows] == [*objectives.MODES] * 2
    by = {row.mode: row for row in rows if row.job == 0}
    assert by["cheapest"].cost < by["budget"].cost < by["fastest"].cost
    assert by["fastest"].seconds < by["budget"].seconds < by["cheapest"].seconds
    assert by["deadline"].kept
    assert by["budget"].kept
    assert by["budget"].changes < 12, "it does not go back and forth"
    assert all(goal.ok for goal in objectives.goals_of(rows))


def test_a_limit_that_is_not_kept_is_a_goal_missed() -> None:
    row = objectives.Row(0, "budget", 10.0, 5.0, 1, 0, limit=4.0, kept=False)
    others = [
        objectives.Row(0, mode, 10.0, 5.0, 1, 0, limit=20.0, kept=True)
        for mode in objectives.MODES
        if mode != "budget"
    ]
    missed = [goal.name for goal in objectives.goals_of([row, *others]) if not goal.ok]
    assert missed == [
        "budget: share of jobs that keep it",
        "budget: its time over cheapest, median",
    ]
