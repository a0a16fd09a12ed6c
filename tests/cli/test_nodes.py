"""``penstock nodes``: what it prints, and what it takes."""

from __future__ import annotations

import pytest

from penstock.cli.exits import UsageError
from penstock.cli.nodes import nodes_table, seconds_of
from penstock.wire import NodeRecord
from tests.cli.test_views import drawn


def test_the_table_says_what_was_found_and_for_how_long_it_counts() -> None:
    records = [
        NodeRecord(
            node="n1",
            avoided=True,
            until=4600.0,
            verdict="Slow",
            what="compute",
            ratio=4.04,
            times=2,
            measured=940.0,
        ),
        NodeRecord(node="n2", avoided=False, until=1300.0, overridden_by="eve", why="repaired"),
    ]
    lines = drawn(nodes_table(records, 1000.0)).splitlines()
    assert lines[1].split() == ["n1", "yes", "1h", "Slow:", "compute", "4.0x", "60s", "2", "-"]
    assert lines[2].split() == ["n2", "no", "5m", "-", "-", "-", "eve:", "repaired"]


def test_times_are_minutes_hours_or_days() -> None:
    assert [seconds_of(text) for text in ("30m", "12h", "7d")] == [1800.0, 43_200.0, 604_800.0]
    for wrong in ("", "12", "0h", "91d", "-1h", "1w"):
        with pytest.raises(UsageError, match="--for"):
            seconds_of(wrong)
