"""The benchmark of partitions, on few and small graphs."""

from __future__ import annotations

import json

import pytest

from benchmarks import partition
from benchmarks.partitioning import cuts, kills
from penstock.data.partition.cut import Cut, Prices, cut_at
from penstock.data.partition.graph import Graph


def test_the_cuts_are_compared_and_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "SIZES", (40,))
    monkeypatch.setattr(cuts, "GOAL_SIZE", 40)
    monkeypatch.setattr("sys.argv", ["partition", "--json", "--part", "cuts", "--graphs", "60"])
    assert partition.main() == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["cuts"]["wrong"] == 0
    assert printed["cuts"]["maximal_dearer"] > 0
    assert {"seconds_40", "seconds_40_hard"} < set(printed["cuts"])
    assert len(printed["goals"]) == 3


def test_a_cut_that_is_not_the_cheapest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_moves(graph: Graph, prices: Prices) -> Cut:
        return cut_at(graph, prices, [len(graph.stages) - 1] * len(graph.nodes))

    monkeypatch.setattr(cuts, "SIZES", ())
    monkeypatch.setattr(cuts, "cheapest", nothing_moves)
    figures, goals = cuts.run(1, 30)
    assert figures["wrong"] > 0
    assert not goals[0].ok


@pytest.mark.slow
def test_kills_of_workers_and_of_the_training_itself_change_no_loss() -> None:
    figures, goals = kills.run(3, 1)
    assert figures["kills"] == 3, figures
    missed = [goal for goal in goals if not goal.ok and "waited" not in goal.name]
    assert not missed, figures
