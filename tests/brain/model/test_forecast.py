"""What jobs will take: the middle is right, nine of ten lie within, and what is unknown is said."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.brain.model.forecast import (
    LEAST_COMPARISONS,
    Estimate,
    Finished,
    Forecaster,
)
from penstock.brain.planning import Signature

ADS = Signature(model="wide", dataset="clicks", user="ann")


def jobs(values: list[float], signature: Signature = ADS) -> list[Finished]:
    return [
        Finished(signature, float(number), number + 0.5, value)
        for number, value in enumerate(values)
    ]


def test_of_jobs_like_none_nothing_is_said() -> None:
    known = Forecaster.of(jobs([60.0, 61.0]))
    assert known.estimate(Signature(model="other", dataset="else", user="bob")) is None
    assert known.estimate(Signature()) is None


def test_one_job_gives_an_estimate_and_no_interval() -> None:
    found = Forecaster.of(jobs([60.0])).estimate(ADS)
    assert found is not None
    assert found.value == pytest.approx(60.0)
    assert (found.jobs, found.low, found.high) == (1, None, None)


def test_the_most_specific_level_with_enough_jobs_decides() -> None:
    others = Signature(model="wide", dataset="clicks", user="bob")
    known = Forecaster.of([*jobs([1000.0] * 2), *jobs([10.0] * 30, others)])
    found = known.estimate(ADS)
    assert found is not None
    assert found.level == ("model", "dataset"), "two of her own are not enough"
    assert found.value == pytest.approx(10.0)


def test_runs_that_agree_have_a_narrow_interval_and_wild_ones_a_wide_one() -> None:
    draws = random.Random(3)
    narrow = Forecaster.of(jobs([600 * math.exp(draws.gauss(0, 0.03)) for _ in range(60)]))
    wide = Forecaster.of(jobs([600 * math.exp(draws.gauss(0, 0.8)) for _ in range(60)]))

    def width(found: Estimate | None) -> float:
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        return found.high / found.low

    assert width(narrow.estimate(ADS)) < 1.3 < 5 < width(wide.estimate(ADS))


def test_figures_that_no_ratio_can_be_made_of_are_left_out() -> None:
    assert Forecaster.of(jobs([0.0, -1.0, math.inf])).estimate(ADS) is None


@settings(max_examples=5, deadline=None)
@given(st.floats(0.02, 1.5), st.integers(0, 2**20))
def test_nine_of_ten_lie_within(sigma: float, seed: int) -> None:
    draws = random.Random(seed)
    families = [Signature(model=f"m{n}", dataset="d", user="u") for n in range(20)]
    sizes = {family: draws.uniform(2, 9) for family in families}
    known, inside, asked = Forecaster(), 0, 0
    for number in range(1100):
        family = draws.choice(families)
        value = math.exp(sizes[family] + draws.gauss(0, sigma))
        expected = known.expected(family)
        found = known.estimate(family) if number > 500 and number % 2 else None
        if found is not None and found.low is not None and found.high is not None:
            asked += 1
            inside += found.low <= value <= found.high
        known.learn(Finished(family, float(number), number + 0.5, value), expected)
    assert asked >= 290
    assert 0.83 <= inside / asked <= 0.97


def test_an_interval_stands_on_enough_comparisons() -> None:
    values = [60.0 + n % 3 for n in range(LEAST_COMPARISONS + 1)]
    for count, there in ((LEAST_COMPARISONS, False), (LEAST_COMPARISONS + 1, True)):
        found = Forecaster.of(jobs(values[:count])).estimate(ADS)
        assert found is not None
        assert found.comparisons == count - 1, "the first job was compared with nothing"
        assert (found.low is not None) is there


def test_jobs_that_ran_beside_a_job_say_nothing_of_how_well_it_was_known() -> None:
    """Bursts of forty jobs that differ by 2 %, each burst by a factor of e from the others."""
    draws, finished = random.Random(5), []
    for burst in range(20):
        size = draws.gauss(0, 1)
        for _ in range(40):
            value = 600 * math.exp(size + draws.gauss(0, 0.02))
            finished.append(Finished(ADS, 1000.0 * burst, 1000.0 * burst + value % 900, value))
    found = Forecaster.of(finished).estimate(ADS)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.high / found.low > math.exp(2.5), "most of nine in ten of a normal distribution"


def test_intervals_that_did_not_hold_make_the_next_ones_wider() -> None:
    """Jobs become more unlike one another, so that those of yesterday tell too little."""
    draws, known, held = random.Random(6), Forecaster(), []
    for number in range(3000):
        family = Signature(model=f"m{number % 40}", dataset="d", user="u")
        value = math.exp(5 + draws.gauss(0, 0.01 * math.exp(number / 400)))
        expected = known.expected(family)
        if expected is not None and expected.within is not None:
            held.append(expected.within[0] <= math.log(value) <= expected.within[1])
        known.learn(Finished(family, float(number), number + 0.5, value), expected)
    assert 0.87 <= sum(held) / len(held) <= 0.93
