"""Notations that are written down as patterns accept exactly what they are meant to."""

from __future__ import annotations

import re

import pytest
from pydantic import TypeAdapter, ValidationError

from penstock.base.fields import JOB_NAME, MAX_REPLICAS, RANK, ByRank, Rank


def test_the_pattern_of_a_rank_ends_at_the_greatest_number_of_replicas() -> None:
    matched = [number for number in range(12_000) if re.fullmatch(RANK, str(number))]
    assert matched == list(range(MAX_REPLICAS))


@pytest.mark.parametrize("key", ["", "-1", "00", "01", "1.0", "1e2", " 1", "1\n", "a", "4096"])
def test_a_key_that_is_no_rank_is_refused(key: str) -> None:
    with pytest.raises(ValidationError, match="each key must be a rank"):
        TypeAdapter(Rank).validate_python(key)


@pytest.mark.parametrize("key", [-1, 4096, 1.0, True, None])
def test_a_rank_in_python_is_an_integer_within_bounds(key: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Rank).validate_python(key)


def test_a_map_by_rank_has_strings_in_json_and_integers_in_python() -> None:
    adapter: TypeAdapter[dict[int, str]] = TypeAdapter(ByRank[str])
    assert adapter.validate_json('{"0": "a", "4095": "b"}') == {0: "a", 4095: "b"}
    assert adapter.dump_json({0: "a"}) == b'{"0":"a"}'


@pytest.mark.parametrize("name", ["a", "a-b", "a9", "j" * 63])
def test_names_of_jobs_are_labels_that_begin_with_a_letter(name: str) -> None:
    assert re.fullmatch(JOB_NAME, name)


@pytest.mark.parametrize("name", ["", "9a", "-a", "a-", "A", "a.b", "a_b"])
def test_other_names_are_not(name: str) -> None:
    assert not re.fullmatch(JOB_NAME, name)
