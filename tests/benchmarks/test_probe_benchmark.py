"""The benchmark of G: its programs see the same batches, and an error is a missed goal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import probe
from penstock.throughput.profiles.measured import Measured
from tests.throughput.programs import a_profile


@pytest.mark.slow
def test_batches_that_were_made_before_are_those_of_the_loader(tmp_path: Path) -> None:
    case = probe.Case("compute", 1)
    alone, replayed = (probe.run(case, way, 6, tmp_path) for way in (probe.ALONE, probe.REPLAYED))
    assert alone["digest"] == replayed["digest"]


@pytest.mark.parametrize(
    ("step", "digest", "code"), [(0.01, "a", 0), (0.011, "a", 1), (0.01, "b", 1)]
)
def test_an_error_or_other_bits_are_a_missed_goal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step: float,
    digest: str,
    code: int,
) -> None:
    def run(case: probe.Case, way: str, batches: int, profile: Path) -> dict[str, Any]:
        found = a_profile(batch_size=16, step=Measured(step, step, step, 1))
        profile.write_text(found.dumps())
        seen = digest if way == probe.PROFILED else "a"
        return {"rate": 1600.0, "faults": 0.0, "seconds": 2.0, "digest": seen}

    monkeypatch.setattr(probe, "run", run)
    monkeypatch.setattr("sys.argv", ["probe", "--rounds", "1", "--json"])
    assert probe.main() == code
    told = json.loads(capsys.readouterr().out)
    assert told["rows"][0]["true"] == 1600.0
    assert [goal["ok"] for goal in told["goals"]] == [step == 0.01, digest == "a", True]


@pytest.mark.parametrize(
    ("rates", "rounds"), [((1600.0, 1601.0), 2), ((1500.0, 1700.0, 1600.0), 3)]
)
def test_no_more_rounds_than_the_figures_need_and_each_is_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rates: tuple[float, ...],
    rounds: int,
) -> None:
    left = list(rates) * len(probe.CASES)

    def run(case: probe.Case, way: str, batches: int, profile: Path) -> dict[str, Any]:
        profile.write_text(a_profile(batch_size=16, step=Measured(0.01, 0.01, 0.01, 1)).dumps())
        rate = left.pop(0) if way == probe.REPLAYED else 1000.0
        return {"rate": rate, "faults": 0.0, "seconds": 2.0, "digest": "a"}

    monkeypatch.setattr(probe, "run", run)
    monkeypatch.setattr("sys.argv", ["probe", "--rounds", "3", "--json"])
    probe.main()
    told = capsys.readouterr()
    assert [row["rounds"] for row in json.loads(told.out)["rows"]] == [rounds] * len(probe.CASES)
    assert told.err.count(", iterable: round") == 3 * rounds
