"""The benchmark of encoders beside the training, with figures made up and in a few real steps."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import encoders
from benchmarks.encoding.model import Encoders, weight_bytes


def run_of(way: str, seconds: float, resident: int, losses: str = "the same") -> dict[str, Any]:
    return {
        "way": way,
        "seconds": [seconds] * 5,
        "cpu_seconds": seconds,
        "receiving_cpu_seconds": 0.001 if way == "stage" else 0.0,
        "losses": losses,
        "resident_bytes": resident,
        "weight_bytes": 100_000_000,
        "called_here": way == "step",
    }


def test_what_the_step_costs_is_held_against_one_that_is_free_of_encoders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = {
        "step": run_of("step", 0.15, 600_000_000),
        "stage": run_of("stage", 0.101, 480_000_000),
        "none": run_of("none", 0.1, 500_000_000),
        "beside": run_of("beside", 0.102, 500_000_000),
    }
    monkeypatch.setattr(encoders, "trained", lambda way, count, steps, seed: [made[way]] * count)
    figures, goals = encoders.run(200, 1, 1)
    ratios = figures["step_over_prefix_free"], figures["gain"], figures["limit"]
    assert ratios == (1.01, 1.485, 1.5)
    assert figures["step_over_prefix_free_beside_work"] == 1.02
    assert [row["receiving_milliseconds"] for row in figures["rows"]] == [0.0, 1.0, 0.0, 0.0]
    assert figures["resident_mb_less"] == 120.0
    assert len(figures["pool"]) == 2
    assert all(goal.ok for goal in goals)
    made["stage"] = run_of("stage", 0.12, 550_000_000, "others")
    _, goals = encoders.run(200, 1, 1)
    assert [goal.ok for goal in goals] == [False, False, False, False, True]
    made["stage"]["called_here"] = True
    _, goals = encoders.run(200, 1, 1)
    assert not goals[-1].ok


def test_the_size_of_the_weights_is_known_without_them() -> None:
    found = Encoders()
    assert weight_bytes() == sum(one.numel() * 4 for one in found.parameters())


@pytest.mark.slow
def test_losses_are_the_same_wherever_the_encoders_run() -> None:
    (beside,) = encoders.trained("stage", 1, 6, 1, settled=2)
    (alone,) = encoders.trained("none", 1, 6, 1, settled=2)
    (neighbour,) = encoders.trained("beside", 1, 6, 1, settled=2)
    assert beside["losses"] == alone["losses"] == neighbour["losses"]
    assert alone["receiving_cpu_seconds"] < beside["receiving_cpu_seconds"]
    assert not beside["called_here"]
    assert len(beside["seconds"]) == 4
