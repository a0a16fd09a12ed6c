"""Every fault is used by a test and written down, or nobody knows that it works or is there."""

from __future__ import annotations

import inspect
from pathlib import Path

from penstock_cluster.faults.catalogue import Faults
from penstock_cluster.faults.endpoint import fault_names

HERE = Path(__file__).parent
TESTS = HERE.parents[1]


def test_there_are_at_least_twenty() -> None:
    assert len(fault_names()) >= 20


def test_each_says_what_it_does() -> None:
    assert [name for name in fault_names() if not inspect.getdoc(getattr(Faults, name))] == []


def test_each_is_used_by_a_test() -> None:
    sources = "".join(
        path.read_text() for path in TESTS.rglob("test_*.py") if path != Path(__file__)
    )
    assert [name for name in fault_names() if name not in sources] == []


def test_each_is_in_the_documentation() -> None:
    page = (TESTS.parent / "docs" / "embedded-cluster.md").read_text()
    assert [name for name in fault_names() if f"`{name}`" not in page] == []
