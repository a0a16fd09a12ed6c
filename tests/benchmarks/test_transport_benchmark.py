"""The transport's benchmark: what its seals cost, and the goals that it is held to."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.transport import compare, goals_of, seal_rows


def test_what_seals_add_is_the_median_of_the_rounds() -> None:
    point = (1_000_000, 1)
    found = {
        "penstock-tcp": {point: [(0.5, 1.0), (0.7, 1.0), (0.62, 1.0)]},
        "penstock-tcp-bare": {point: [(0.4, 1.0), (0.65, 1.0), (0.5, 1.0)]},
        "penstock-tcp-encrypted": {point: [(0.7, 1.0)]},
    }
    assert seal_rows(found) == [{"bytes": 1_000_000, "tensors": 1, "mac": 0.1, "encryption": 0.3}]
    assert seal_rows({"penstock-tcp": found["penstock-tcp"]}) == []


@pytest.mark.parametrize(
    ("mac", "encryption", "shared", "missed"),
    [
        (0.1, 0.3, 0.3, set()),
        (0.11, 0.3, 0.3, {"mac"}),
        (0.1, 0.31, 0.3, {"encryption"}),
        (0.1, None, 0.4, {"encryption", "shared memory"}),
    ],
)
def test_goals_are_of_large_batches(
    mac: float, encryption: float | None, shared: float, missed: set[str]
) -> None:
    small: dict[str, Any] = {"bytes": 65_536, "tensors": 1, "mac": 9.0, "encryption": 9.0}
    large: dict[str, Any] = {"bytes": 1_000_000, "tensors": 1, "mac": mac}
    if encryption is not None:
        large["encryption"] = encryption
    result = {
        "seals": [small, large],
        "systems": {"penstock-shm": [{"bytes": 1_000_000, "cores_per_gbps": shared}]},
    }
    assert {goal.name.split(":")[0] for goal in goals_of(result) if not goal.ok} == missed


def test_all_ways_are_measured() -> None:
    names = ["penstock-tcp", "penstock-shm", "penstock-tcp-bare", "penstock-tcp-encrypted"]
    result = compare(names, rounds=1, seconds=0.05, limit_seconds=50, sizes=(1_000_000,))
    assert "failed" not in result
    assert set(result["systems"]) == set(names)
    assert all({"mac", "encryption"} <= row.keys() for row in result["seals"])
