"""The figures of caches: counted misses are what the formulas say, and a picture is drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cache_figures


def test_the_figures_are_counted_drawn_and_within_their_goals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "caches.png"
    monkeypatch.setattr("sys.argv", ["cache_figures", "--json", "--plot", str(picture)])
    assert cache_figures.main() == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["policy"]: row["least"] for row in told["small"]} == {"LRU": 2, "MinIO": 2}
    assert picture.stat().st_size > 10_000


def test_a_formula_that_is_wrong_is_a_missed_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cache_figures.HITS, "LRU", lambda share: share)
    monkeypatch.setattr("sys.argv", ["cache_figures", "--json"])
    assert cache_figures.main() == 1
    assert not json.loads(capsys.readouterr().out)["goals"][0]["ok"]
