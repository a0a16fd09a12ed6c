"""The benchmark of more and more data workers, with rates made up and with two real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import scaleout


def test_rates_stand_beside_those_of_one_and_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {0: 10.0, 1: 12.0, 8: 94.0, 14: 150.0}
    monkeypatch.setattr(
        scaleout, "rate", lambda count, work, seconds, seed: {"rate": rates[count], "made_here": 0}
    )
    figures, goals = scaleout.run([1, 8, 14], "sleeps", 1.0, 0)
    assert [row["fraction_of_linear"] for row in figures["rows"]] == [1.0, 0.979, 0.893]
    assert figures["rows"][-1]["speed_up"] == 15.0
    assert figures["rows"][-1]["cost_less"] == 0.932
    assert [goal.ok for goal in goals] == [True, True, False, True]


@pytest.mark.slow
def test_two_data_workers_make_an_unmodified_program_faster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["scaleout", "--workers", "2", "--work", "sleeps", "--seconds", "1", "--json"]
    monkeypatch.setattr("sys.argv", arguments)
    scaleout.main()
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [row["data_workers"] for row in printed["rows"]] == [1, 2]
    assert all(row["steps_per_second"] > 0 for row in printed["rows"])
    assert len(printed["goals"]) == 2
