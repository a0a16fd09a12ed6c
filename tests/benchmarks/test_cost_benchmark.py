"""The arithmetic of tf.data service's paper comes out of the model."""

from __future__ import annotations

import json

import pytest

from benchmarks import cost


def test_the_papers_dollars_and_its_sweep_are_reached(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["cost", "--json"])
    assert cost.main() == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["total"] for row in printed["dollars"]] == [80.23, 40.63]
    assert [row["binding"] for row in printed["sweep"]] == ["data workers"] * 3
