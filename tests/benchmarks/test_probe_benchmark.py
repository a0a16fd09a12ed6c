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
        return {"rate": 1600.0, "seconds": 2.0, "digest": seen}

    monkeypatch.setattr(probe, "run", run)
    monkeypatch.setattr("sys.argv", ["probe", "--rounds", "1", "--json"])
    assert probe.main() == code
    told = json.loads(capsys.readouterr().out)
    assert told["rows"][0]["true"] == 1600.0
    assert [goal["ok"] for goal in told["goals"]] == [step == 0.01, digest == "a", True]
