"""The next byte of a cache goes where it shortens a stall most, and none where there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.cache.allocate import Reading, allocate

GIB = 1 << 30
slow = Reading(100 * GIB, cache_rate=10e9, storage_rate=15e6, needed_rate=200e6)
fast = Reading(100 * GIB, cache_rate=10e9, storage_rate=530e6, needed_rate=600e6)


def test_a_job_without_stall_gets_nothing() -> None:
    quick = Reading(100 * GIB, cache_rate=10e9, storage_rate=530e6, needed_rate=500e6)
    assert allocate(10 * GIB, {"quick": quick, "slow": slow}) == {"quick": 0, "slow": 10 * GIB}


def test_nobody_gets_more_than_ends_its_stall() -> None:
    given_ = allocate(200 * GIB, {"fast": fast})
    held = given_["fast"]
    assert held == pytest.approx(fast.enough, rel=1e-6)
    assert 0 < held < 100 * GIB
    assert fast.stall(held + 1) == pytest.approx(0, abs=1e-6)


def test_the_smaller_of_two_data_sets_gains_more_by_a_byte() -> None:
    small = Reading(10 * GIB, 10e9, 50e6, 1e9)
    large = Reading(100 * GIB, 10e9, 50e6, 1e9)
    assert allocate(5 * GIB, {"large": large, "small": small}) == {"large": 0, "small": 5 * GIB}


def test_where_nothing_is_known_of_the_need_the_slower_storage_is_relieved() -> None:
    a, b = Reading(10 * GIB, 10e9, 500e6), Reading(10 * GIB, 10e9, 5e9)
    assert allocate(5 * GIB, {"a": a, "b": b}) == {"a": 5 * GIB, "b": 0}


rates = st.floats(1e6, 1e11)
readings = st.builds(Reading, st.integers(1, 1 << 42), rates, rates, rates)


@given(st.integers(1, 1 << 42), st.dictionaries(st.sampled_from("abcd"), readings, min_size=1))
def test_quotas_are_within_the_capacity_and_what_is_of_use(
    capacity: int, those: dict[str, Reading]
) -> None:
    quotas = allocate(capacity, those)
    assert set(quotas) == set(those)
    assert sum(quotas.values()) <= capacity
    for name, quota in quotas.items():
        assert 0 <= quota <= those[name].enough
    left = capacity - sum(quotas.values())
    if left > capacity * 1e-6 + len(those):
        for name, quota in quotas.items():
            assert quota >= int(those[name].enough) - 1, "bytes are left, and it could use them"


@pytest.mark.parametrize("field", ["size", "cache_rate", "storage_rate", "needed_rate"])
def test_what_cannot_be_is_refused_by_name(field: str) -> None:
    bad = Reading(**{"size": 1, "cache_rate": 2.0, "storage_rate": 1.0, field: 0})
    with pytest.raises(ValueError, match=f"disc: {field}"):
        allocate(1, {"disc": bad})
