"""Tuning stage by stage: one stage at a time, up to what the training takes, and no further."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.scheduler.stage_tuning import (
    MOST_GROWTH,
    SPARE_RATIO,
    MeasuredStage,
    StageTuning,
    begin,
    step,
)
from penstock.scheduler.tuning import IDEAL_RATIO

LIMIT = 40


def measured(tuning: StageTuning, takes: float, each: tuple[float, ...]) -> list[MeasuredStage]:
    able = [one * count for one, count in zip(each, tuning.workers, strict=True)]
    rate = min(takes, *able)
    return [MeasuredStage(rate, rate / one) for one in able]


def tune(takes: float, each: tuple[float, ...], intervals: int = 60) -> list[StageTuning]:
    states = [begin(len(each))]
    for _ in range(intervals):
        now = states[-1]
        limits = (LIMIT,) * len(each)
        states.append(step(now, measured(now, takes, each), takes, limits))
        if states[-1].is_final:
            break
    return states


@given(st.floats(0.1, 100), st.lists(st.floats(0.05, 3), min_size=1, max_size=4))
@settings(max_examples=100)
def test_it_ends_with_what_each_stage_needs_changing_one_at_a_time(
    takes: float, shares: list[float]
) -> None:
    each = tuple(takes * share for share in shares)
    states = tune(takes, each)
    for before, after in itertools.pairwise(states):
        changed = [
            (own, new) for own, new in zip(before.workers, after.workers, strict=True) if own != new
        ]
        assert len(changed) <= 1
        assert all(1 <= new <= min(LIMIT, MOST_GROWTH * own) for own, new in changed)
    assert states[-1].is_final
    for one, count in zip(each, states[-1].workers, strict=True):
        assert one * count >= IDEAL_RATIO * takes * (1 - 1e-9)
        assert count == 1 or one * (count - 1) < SPARE_RATIO * takes


def test_the_stage_that_could_do_least_is_first() -> None:
    states = tune(10.0, (4.0, 1.0))
    assert states[1].workers == (1, MOST_GROWTH)
    assert "stage 1 could do 10%" in states[1].why


def test_workers_that_bring_nothing_are_given_back_for_good() -> None:
    tuning = step(begin(1), [MeasuredStage(1.0, 1.0)], 2.0, (LIMIT,))
    assert tuning.workers == (2,)
    tuning = step(tuning, [MeasuredStage(1.01, 1.0)], 2.0, (LIMIT,))
    assert tuning.workers == (1,)
    assert "brought 1%: given back" in tuning.why
    tuning = step(tuning, [MeasuredStage(1.0, 1.0)], 2.0, (LIMIT,))
    assert (tuning.workers, tuning.is_final) == ((1,), True)


def test_a_stage_at_its_limit_is_left_and_the_others_hold_no_more_than_it_can_use() -> None:
    tuning = StageTuning((LIMIT, 9))
    tuning = step(tuning, measured(tuning, 100.0, (1.0, 20.0)), 100.0, (LIMIT, LIMIT))
    assert tuning.workers == (LIMIT, 3), "three keep up with the first stage"


@pytest.mark.parametrize(
    ("stage", "takes"),
    [
        (MeasuredStage(math.nan, 0.5), 1.0),
        (MeasuredStage(1.0, math.inf), 1.0),
        (MeasuredStage(-1.0, 0.5), 1.0),
        (MeasuredStage(1.0, 0.5), 0.0),
        (MeasuredStage(1.0, 0.5), math.nan),
    ],
)
def test_what_is_no_measurement_changes_nothing(stage: MeasuredStage, takes: float) -> None:
    tuning = step(begin(1), [stage], takes, (LIMIT,))
    assert tuning.workers == (1,)
    assert not tuning.is_final
    assert "wait" in tuning.why


def test_a_stage_that_was_not_needed_yet_is_able_to_do_anything() -> None:
    tuning = step(begin(2), [MeasuredStage(1.0, 1.0), MeasuredStage(0.0, 0.0)], 1.0, (9, 9))
    assert (tuning.workers, tuning.is_final) == ((1, 1), True)
