"""What the benchmarks' goals are held against."""

from __future__ import annotations

import json

import pytest

from benchmarks.goals import at_least, at_most, equal, interval_of, report


def test_the_interval_is_that_of_student() -> None:
    found = interval_of([0.9, 1.0, 1.1])
    assert (found.mean, found.count) == (1.0, 3)
    assert found.low == pytest.approx(1 - 4.303 * 0.1 / 3**0.5, abs=1e-4)
    assert found.high == pytest.approx(1 + 4.303 * 0.1 / 3**0.5, abs=1e-4)


def test_the_interval_of_many_goes_on_where_the_table_ends() -> None:
    values = [1.0, 2.0] * 20
    found, spread = interval_of(values), (0.25 * 40 / 39) ** 0.5
    assert found.high == pytest.approx(1.5 + 2.0227 * spread / 40**0.5, abs=1e-3)  # 39 degrees


def test_one_value_has_no_interval() -> None:
    assert interval_of([2.0]).low is None


def test_a_missed_goal_is_an_exit_code_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    reached = [at_least("a", 1.0, 1.0), at_most("b", 1.0, 1.0), equal("c", [])]
    assert report({"seed": 0}, reached, as_json=True) == 0
    for missed in (at_least("a", 1.0, 0.99), at_least("a", 1.0, None), equal("c", ["x"])):
        assert report({"seed": 0}, [*reached, missed], as_json=True) == 1
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [goal["ok"] for goal in printed[-1]["goals"]] == [True, True, True, False]


def test_tables_have_a_column_for_each_key(capsys: pytest.CaptureFixture[str]) -> None:
    report({"rows": [{"a": 1, "b": 2.5}, {"a": 3, "c": None}]}, [], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert "rows" in lines
    assert "a  b    c" in lines
    assert "3  -    -" in lines
