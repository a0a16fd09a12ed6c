"""What the nodes had is what they were seen with, and its parts are all of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brain.model.capacity import MOST_SECONDS, Part, amounts, minutes, shared_out
from penstock.brain.model.spent import GIB, Spent, total

NODE = {
    "milli_cpu": 8000,
    "free_milli_cpu": 2000,
    "memory_bytes": 32 * GIB,
    "free_memory_bytes": 8 * GIB,
    "accelerators": 4,
    "free_accelerators": 2.0,
}


def test_amounts_are_those_of_all_nodes() -> None:
    had = amounts([NODE, NODE], 1.5, 0.5)
    assert had["node_seconds"] == 2
    assert (had["core_seconds"], had["free_core_seconds"]) == (16, 4)
    assert (had["gib_seconds"], had["accelerator_seconds"]) == (64, 8)
    assert (had["stranded_accelerator_seconds"], had["stranded_core_seconds"]) == (1.5, 0.5)


def test_the_first_picture_and_one_that_came_twice_say_nothing_of_the_time() -> None:
    assert list(minutes({"node_seconds": 1.0}, None, 100.0)) == []
    assert list(minutes({"node_seconds": 1.0}, 100.0, 100.0)) == []
    assert list(minutes({"node_seconds": 1.0}, 100.0, 90.0)) == []


def test_a_picture_stands_for_the_time_since_the_last_one_by_the_minute() -> None:
    assert list(minutes({"node_seconds": 2.0}, 110.0, 190.0)) == [
        {"start_seconds": 60.0, "node_seconds": 20.0},
        {"start_seconds": 120.0, "node_seconds": 120.0},
        {"start_seconds": 180.0, "node_seconds": 20.0},
    ]


@given(st.lists(st.floats(0.01, 500), min_size=1, max_size=50))
def test_no_second_is_counted_twice_and_a_long_silence_is_not_known(gaps: list[float]) -> None:
    known, before = 0.0, 1000.0
    for gap in gaps:
        rows = list(minutes({"covered_seconds": 1.0}, before, before + gap))
        before += gap
        known += math.fsum(row["covered_seconds"] for row in rows)
        assert all(row["covered_seconds"] <= 60 + 1e-6 for row in rows)
    assert known == pytest.approx(sum(min(gap, MOST_SECONDS) for gap in gaps), rel=1e-6)


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_the_parts_are_what_the_nodes_had(
    free: float, stranded: float, given_share: float, idle: float, repeated: float
) -> None:
    had = {}
    spent = {}
    for kind, whole in (("core", 1e6), ("gib", 4e6), ("accelerator", 1e5)):
        had[f"{kind}_seconds"] = whole
        had[f"free_{kind}_seconds"] = whole * free
        had[f"stranded_{kind}_seconds"] = whole * free * stranded
        used = whole * (1 - free) * given_share
        spent[f"{kind}_seconds"] = used
        spent[f"idle_{kind}_seconds"] = used * idle
        spent[f"repeated_{kind}_seconds"] = used * (1 - idle) * repeated
    parts = shared_out(had, Spent(**spent))
    assert set(parts) == set(Part)
    together = total(parts.values())
    for kind in ("core", "gib", "accelerator"):
        name = f"{kind}_seconds"
        assert getattr(together, name) == pytest.approx(had[name], rel=1e-9)
        assert all(getattr(part, name) >= -1e-3 for part in parts.values())
    assert parts[Part.STRANDED].accelerator_seconds == pytest.approx(1e5 * free * stranded)
