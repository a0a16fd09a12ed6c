"""The kill benchmark, cut short: nothing is lost, repeated or left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kill import run


@pytest.mark.slow
def test_whatever_is_killed_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    result = run(kills=8, seed=3, folder=tmp_path, samples=600)
    assert result["epochs_ended"] == 2, (tmp_path / "log.txt").read_text()[-3000:]
    assert (result["lost"], result["repeated"]) == (0, 0)
    assert result["identical"]
    assert result["left_behind"] == []
    assert result["kills"] > 2
