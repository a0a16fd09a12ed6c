"""The benchmark of predictions: its programs work, and it compares what it says it does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import stalls
from penstock.throughput.loop.prediction import predict
from penstock.throughput.profiles.profile import Profile
from tests.throughput.programs import a_profile


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(stalls.KINDS))
def test_its_programs_train_and_say_how_fast(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = stalls.command

    def short(*arguments: Any) -> list[str]:
        return [*plain(*arguments), "--batches", "5"]

    monkeypatch.setattr(stalls, "command", short)
    found = stalls.run(tmp_path, kind, 1, 1, 0.5)
    assert 0 < found["rate"] <= 16 / (stalls.KINDS[kind] / 1000)
    assert 0 <= found["stalled"] <= 1


@pytest.mark.parametrize(("off", "code"), [(1.0, 0), (1.2, 1)])
def test_an_error_beyond_the_goal_is_a_missed_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], off: float, code: int
) -> None:
    def profiled(folder: Path, kind: str, cores: int, workers: int, cached: float) -> Profile:
        resources = replace(a_profile().resources, cores=cores, workers=workers)
        return a_profile(resources=resources)

    def run(folder: Path, kind: str, cores: int, workers: int, cached: float) -> dict[str, float]:
        there = replace(a_profile().resources, cores=cores, workers=workers)
        return {"rate": off * predict(a_profile(), there).rate}

    monkeypatch.setattr(stalls, "profiled", profiled)
    monkeypatch.setattr(stalls, "run", run)
    monkeypatch.setattr("sys.argv", ["stalls", "--json", "--rounds", "1"])
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert stalls.main() == code
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["rows"]) == 27
    assert printed["goals"][2]["ok"] == (code == 0)
