"""The benchmark of weights, on a small module."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks import weights
from tests import fork_server


@pytest.mark.slow
def test_weights_are_sent_once_to_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(command: list[str], env: dict[str, str]) -> fork_server.Forked:
        return fork_server.start(command[1:], env=env)

    monkeypatch.setattr(weights, "subprocess", SimpleNamespace(Popen=start))
    rows, goals = weights.run(8, 10, 1)
    assert all(goal.ok for goal in goals), goals
    assert [row["workers"] for row in rows] == ["1", "2 of one node", "2 of two nodes"]
    assert {row["sent_times"] for row in rows[:2]} == {1.0}
