"""Steps that are trained again after a failure are known by where the steps had been."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brain.model.repeated import Repeated


def shares(steps: list[int], before: int | None = None, peak: int = 0) -> list[float]:
    return of(Repeated(before, peak), steps)


def of(job: Repeated, steps: list[int], samples_per_second: float = 1.0) -> list[float]:
    return [job.share(step, samples_per_second) for step in steps]


def test_from_the_step_that_was_saved_to_the_one_that_was_reached_everything_is_repeated() -> None:
    #       to 100, back to 40 in the third sample, and past 100 in the sixth
    assert shares([50, 100, 40, 70, 95, 115, 140]) == [0, 0, 0, 1, 1, 0.25, 0]


def test_what_was_before_is_remembered_and_nothing_counts_where_it_is_not_known() -> None:
    assert shares([70], before=60, peak=100) == [1]
    assert shares([70, 80], before=None, peak=100) == [0, 1]
    assert shares([120], before=100, peak=100) == [0]


def test_a_training_that_waits_repeats_nothing() -> None:
    assert shares([5, 5, 5, 6]) == [0, 0, 0, 0]


def test_a_second_failure_on_the_way_back_goes_on_to_the_same_step() -> None:
    assert shares([100, 40, 60, 20, 80, 120]) == [0, 0, 1, 0, 1, 0.5]


def test_steps_that_are_counted_by_process_say_nothing() -> None:
    assert of(Repeated(before=100, peak=100), [10, 20], 0.0) == [0, 0]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(0, 40))
def test_no_step_is_counted_before_it_was_trained_and_cutting_changes_nothing(
    steps: list[int], cut: int
) -> None:
    whole = shares(steps)
    assert all(0 <= share <= 1 for share in whole)
    again = 0.0
    for before, step, share in zip(steps, steps[1:], whole[1:], strict=False):
        again += share * (step - before)
    went_back = sum(max(0, max(steps[: i + 1]) - steps[i + 1]) for i in range(len(steps) - 1))
    assert again <= went_back + 1e-9
    first = Repeated()
    parts = of(first, steps[:cut])
    parts += of(Repeated(first.before, first.peak), steps[cut:])
    assert parts == pytest.approx(whole)
