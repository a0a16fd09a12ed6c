"""The benchmark of bad machines names those that are planted, and its peers see the same worlds."""

from __future__ import annotations

import pytest

from benchmarks.badnodes import HARDWARE, run


def test_the_planted_are_named() -> None:
    rows = {row["way"]: row for row in run(1500, range(1))}
    assert rows["penstock"]["recall"] >= 0.9
    assert rows["penstock"]["precision"] >= 0.9
    assert {row["planted"] for row in rows.values()} == {15}
    assert rows["two rounds"]["rounds"] == 2


def test_the_classes_are_a_whole() -> None:
    assert sum(share for share, _ in HARDWARE.values()) == pytest.approx(1.0)
