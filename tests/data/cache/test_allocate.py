"""Bytes of a cache go where they spare most waiting, and none where there is none."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.data.cache.allocate import WORTH_MOVING, Reading, allocate, divide

GIB = 1 << 30
# Those that fetch ahead: what they need is what they work at.
slow = Reading(100 * GIB, 10e9, storage_rate=15e6, work_rate=200e6, needed_rate=200e6)
fast = Reading(100 * GIB, 10e9, storage_rate=530e6, work_rate=600e6, needed_rate=600e6)


def test_a_job_without_stall_gets_nothing() -> None:
    quick = Reading(100 * GIB, 10e9, storage_rate=530e6, work_rate=500e6, needed_rate=500e6)
    assert allocate(10 * GIB, {"quick": quick, "slow": slow}) == {"quick": 0, "slow": 10 * GIB}


def test_nobody_gets_more_than_ends_its_stall() -> None:
    held = allocate(200 * GIB, {"fast": fast})["fast"]
    assert held == pytest.approx(fast.enough, rel=1e-6)
    assert 0 < held < 100 * GIB
    assert fast.waiting(held + 1) == pytest.approx(0, abs=1e-6)


def test_the_smaller_of_two_data_sets_gains_more_by_a_byte() -> None:
    small = Reading(10 * GIB, 10e9, 50e6, 1e9)
    large = Reading(100 * GIB, 10e9, 50e6, 1e9)
    assert allocate(5 * GIB, {"large": large, "small": small}) == {"large": 0, "small": 5 * GIB}


def test_what_two_jobs_read_is_worth_twice_as_much() -> None:
    one, two = (Reading(10 * GIB, 10e9, 50e6, 1e9, jobs=jobs) for jobs in (1, 2))
    assert allocate(5 * GIB, {"a": one, "b": two}) == {"a": 0, "b": 5 * GIB}


def test_who_computes_much_for_each_byte_waits_least_for_it() -> None:
    waits, computes = Reading(GIB, 2e9, 50e6, 500e6), Reading(GIB, 2e9, 50e6, 10e6)
    assert allocate(GIB, {"computes": computes, "waits": waits}) == {"waits": GIB, "computes": 0}


def test_what_is_divided_stays_until_another_division_is_worth_it() -> None:
    a, b = Reading(10 * GIB, 10e9, 50e6, 1.0e9), Reading(10 * GIB, 10e9, 50e6, 1.05e9)
    given_ = divide(10 * GIB, {"a": a, "b": a}, {})
    assert given_ == {"a": 10 * GIB, "b": 0}
    assert divide(10 * GIB, {"a": a, "b": b}, given_) == given_
    twice = Reading(10 * GIB, 10e9, 50e6, 2e9)
    assert divide(10 * GIB, {"a": a, "b": twice}, given_) == {"a": 0, "b": 10 * GIB}
    assert divide(10 * GIB, {"b": b}, given_) == {"b": 10 * GIB}, "a is no more"


rates = st.floats(1e6, 1e11)
needs = rates | st.just(float("inf"))
readings = st.builds(
    Reading, st.integers(1, 1 << 42), rates, rates, rates, needs, st.floats(0.1, 9)
)
several = st.dictionaries(st.sampled_from("abcd"), readings, min_size=1)


def waiting(those: dict[str, Reading], quotas: dict[str, int]) -> float:
    return sum(one.waiting(quotas[name]) for name, one in those.items())


@given(st.integers(1, 1 << 42), several)
def test_quotas_are_within_the_capacity_and_what_is_of_use(
    capacity: int, those: dict[str, Reading]
) -> None:
    quotas = allocate(capacity, those)
    assert set(quotas) == set(those)
    assert sum(quotas.values()) <= capacity
    for name, quota in quotas.items():
        assert 0 <= quota <= those[name].enough + 1
    if sum(quotas.values()) < capacity:
        for name, quota in quotas.items():
            assert quota >= those[name].enough, "bytes are left, and it could use them"


@given(st.integers(1, 1 << 42), several, st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_no_other_division_waits_less(
    capacity: int, those: dict[str, Reading], parts: list[float]
) -> None:
    assume(sum(parts) > 0)
    other = {
        name: int(capacity * part / max(1.0, sum(parts)))
        for name, part in zip(those, parts, strict=False)
    }
    least = waiting(those, allocate(capacity, those))
    byte = sum(one.spared for one in those.values())
    assert least <= waiting(those, other) * (1 + 1e-6) + byte + 1e-9


@given(st.integers(1, 1 << 42), several, several)
def test_a_division_is_kept_or_better_by_far(
    capacity: int, those: dict[str, Reading], earlier: dict[str, Reading]
) -> None:
    before = {name: one for name, one in allocate(capacity, earlier).items() if name in those}
    now = divide(capacity, those, before)
    assert sum(now.values()) <= capacity
    kept = {name: before.get(name, 0) for name in those}
    if now != kept:
        assert waiting(those, now) <= (1 - WORTH_MOVING) * waiting(those, kept) + 1e-9


@pytest.mark.parametrize(
    "field", ["size", "cache_rate", "storage_rate", "work_rate", "needed_rate", "jobs"]
)
def test_what_cannot_be_is_refused_by_name(field: str) -> None:
    bad = Reading(**{"size": 1, "cache_rate": 2.0, "storage_rate": 1.0, "work_rate": 1.0, field: 0})
    with pytest.raises(ValueError, match=f"disc: {field}"):
        allocate(1, {"disc": bad})
