"""The benchmark of planted stalls: what is planted is what the program waited for, by its clock."""

from __future__ import annotations

import pytest

from benchmarks import planted_stalls
from benchmarks.planted_stalls import Case
from benchmarks.stalls_programs.planted import COLLATE, DECODE, FETCH, waited_for
from tests.throughput.programs import a_profile


def test_a_wait_is_laid_over_the_parts_of_its_batch() -> None:
    parts = [(FETCH, 0.0, 2.0, 2.0), (DECODE, 2.0, 6.0, 1.0), (COLLATE, 7.0, 8.0, 1.0)]
    found = waited_for(parts, 1.0, 9.0)
    expected = {"fetch": 1.0, "decode": 1.0, "too few cores": 4.0, "collate": 1.0, "rest": 1.0}
    assert found == pytest.approx(expected)
    assert sum(found.values()) == pytest.approx(8.0)


def test_shares_are_of_the_measured_batches_alone() -> None:
    case = Case("fetch", fetch=1.0)
    early = [{"asked": 0.0, "returned": 0.0, "causes": {"fetch": 99.0}}] * case.warm_up
    measured = [
        {"asked": 10.0 + 4 * i, "returned": 11.0 + 4 * i, "causes": {"fetch": 1.0}}
        for i in range(planted_stalls.MEASURED)
    ]
    found = planted_stalls.planted_shares(case, [*early, *measured])
    assert found == pytest.approx({"fetch": 0.25, "training": 0.75})


def test_a_cause_that_was_not_found_is_an_error_of_its_whole_share() -> None:
    profile = a_profile(causes={"decode": 0.2, "hand-over": 0.1})
    planted = {"fetch": 0.1, "decode": 0.2, "training": 0.7}
    rows = planted_stalls.compared(Case("mixed"), "nobody", profile, planted)
    errors = {row["cause"]: row["error"] for row in rows}
    assert errors == pytest.approx({"fetch": -0.1, "decode": 0.0, "training": 0.0, "rest": 0.1})
