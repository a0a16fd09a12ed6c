"""The benchmark of weights, on a small module."""

from __future__ import annotations

import pytest

from benchmarks import weights


@pytest.mark.slow
def test_weights_are_sent_once_to_each_node() -> None:
    rows, goals = weights.run(8, 10, 1)
    assert all(goal.ok for goal in goals), goals
    assert [row["workers"] for row in rows] == ["1", "2 of one node", "2 of two nodes"]
    assert {row["sent_times"] for row in rows[:2]} == {1.0}
