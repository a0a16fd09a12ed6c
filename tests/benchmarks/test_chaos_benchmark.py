"""Which faults there are, and what the one that delays packets does, on a cluster that is none."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import chaos
from benchmarks.chaos import Chaos
from benchmarks.elastic.cluster import Cluster


class Faults:
    """Notes what is asked of a cluster of one worker."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def pods(self, role: str) -> list[dict[str, Any]]:
        return [{"metadata": {"name": f"{role}-0"}}]

    def fault(self, kind: str, **arguments: Any) -> None:
        self.asked.append((kind, arguments))


def made(faults: Faults, folder: Path, *kinds: str) -> Chaos:
    return Chaos(cast("Cluster", faults), folder, random.Random(1), only=kinds)


def test_packets_of_a_worker_are_delayed_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, slept = Faults(tmp_path), []
    monkeypatch.setattr(chaos.time, "sleep", slept.append)
    made(faults, tmp_path, "delay-worker-20s").kinds["delay-worker-20s"]()
    assert faults.asked == [
        ("delay_pod", {"name": "worker-0", "delay_seconds": 0.3, "jitter_seconds": 0.2}),
        ("heal_pod", {"name": "worker-0"}),
    ]
    assert slept == [20]


def test_only_the_faults_that_are_asked_for(tmp_path: Path) -> None:
    assert list(made(Faults(tmp_path), tmp_path, "kill-brain", "lose-node").kinds) == [
        "kill-brain",
        "lose-node",
    ]
    with pytest.raises(ValueError, match="kinds: earthquake; there are kill-worker, "):
        made(Faults(tmp_path), tmp_path, "earthquake", "kill-brain")


def test_who_was_said_to_hang_is_counted_over_all_logs(tmp_path: Path) -> None:
    logs = tmp_path / "pods" / "one"
    logs.mkdir(parents=True)
    (logs / "0.log").write_text(
        "worker-1: TrainingStandsStill: for 12 s\nworker-1: TrainingStandsStill: over\n"
    )
    (logs / "1.log").write_text("the program has not ended its step for 21 s\n")
    assert made(Faults(tmp_path), tmp_path).times_named() == 2


def test_a_worker_that_is_waited_for_is_told_from_one_that_is_left_behind(tmp_path: Path) -> None:
    line = '{{"step": {0}, "time": {0}.0, "world": {1}, "losses": {{"0": 1.0}}}}\n'
    (tmp_path / "steps-0-0.jsonl").write_text(
        line.format(1, 2) + line.format(2, 3) + line.format(3, 3)
    )
    chaos = made(Faults(tmp_path), tmp_path)
    assert not chaos.trained_without(1.5)
    assert chaos.trained_without(0.5)
