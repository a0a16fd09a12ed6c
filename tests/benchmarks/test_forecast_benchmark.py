"""The forecasts' benchmark on a small trace: all its figures, and a range that holds."""

from __future__ import annotations

from benchmarks.forecast import generated, goals_of, judged


def test_the_second_half_is_estimated_from_what_had_finished() -> None:
    row = judged("generated", generated(3000, seed=2))
    assert row["jobs"] == 1500
    assert 0.85 <= row["inside"] <= 0.95
    assert row["median_error"] < 0.2
    assert {goal.name for goal in goals_of([row], 1.0) if not goal.ok} <= {
        "generated: jobs with a range"
    }
