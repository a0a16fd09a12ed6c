"""The benchmark of steps of like length: it trains real ranks, and judges what it finds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks import buckets


@pytest.mark.slow
def test_two_ranks_train_on_every_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "TRAINED", 101)
    seconds, seen = buckets.trained(1, buckets.REAL_WIDTH)
    assert sorted(seen) == list(range(101))
    assert seconds > 0


def test_two_ways_to_train_are_compared_and_lost_samples_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buckets, "TRAINED", 3)
    made = {0: (8.0, [2, 0, 1]), buckets.REAL_WIDTH: (4.0, [1, 0, 1])}
    monkeypatch.setattr(buckets, "trained", lambda seed, width: made[width])
    row = buckets.real_row(1, 2)
    assert (row["speedup"], row["seconds"], row["seconds_without"]) == (2.0, 4.0, 8.0)
    assert row["epochs_with_lost_or_repeated"] == 2, "one of each of two rounds"


@pytest.mark.parametrize(("speedup", "code"), [(1.6, 0), (1.4, 1)])
def test_a_missed_goal_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], speedup: float, code: int
) -> None:
    monkeypatch.setattr(buckets, "SAMPLES", 20_000)
    monkeypatch.setattr(buckets, "MODELS", [replace(one, ranks=4) for one in buckets.MODELS])
    real = {"speedup": speedup, "epochs_with_lost_or_repeated": 0}
    monkeypatch.setattr(buckets, "real_row", lambda *_: real)
    monkeypatch.setattr("sys.argv", ["buckets", "--json"])
    assert buckets.main() == code
    printed = json.loads(capsys.readouterr().out)
    assert {"seed", "load", "rows", "goals"} <= printed.keys()
    assert [one["ok"] for one in printed["goals"]].count(False) == code
