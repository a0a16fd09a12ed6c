"""Data workers that a model of the job asks for at once, and what becomes of its promise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler.tuning import (
    WORTH_RATIO,
    Limits,
    Measured,
    Predicted,
    Stage,
    Tuning,
    begin,
    step,
)

LIMITS = Limits(training_cores=4, data_worker_cores=4, data_workers=8)
SIX = Predicted(data_workers=6, cores=1, throughput=4.0, why="cores bind")


def asked(predicted: Predicted = SIX, limits: Limits = LIMITS):
    return step(begin(limits), Measured(10, 10, 50), limits, predicted)


def test_all_are_asked_for_at_once_and_a_promise_that_is_kept_ends_the_climb() -> None:
    there = asked()
    assert (there.stage, there.data_workers, there.data_worker_cores) == (Stage.PREDICTED, 6, 1)
    assert there.promised == 40
    assert step(there, Measured(10, 10, 50, granted=False), LIMITS).data_workers == 6
    kept = step(there, Measured(39, 39, 50), LIMITS)
    assert (kept.stage, kept.data_workers) == (Stage.TUNED, 6)


def test_what_is_missing_may_be_had_from_one_more_that_is_given_back_if_not() -> None:
    more = step(asked(), Measured(38, 38, 39.5), LIMITS)
    assert (more.stage, more.data_workers) == (Stage.DATA_WORKERS, 7)
    worth = step(more, Measured(39.4, 39.4, 39.5), LIMITS)
    assert (worth.stage, worth.data_workers) == (Stage.TRAINING_WORKER_SIZE, 7)
    worthless = step(more, Measured(38.3, 38.3, 39.5), LIMITS)
    assert (worthless.stage, worthless.data_workers) == (Stage.TRAINING_WORKER_SIZE, 6)
    few = Limits(training_cores=4, data_worker_cores=4, data_workers=6)
    assert step(asked(limits=few), Measured(38, 38, 50), few).data_workers == 6


def test_a_queue_that_is_full_goes_on_with_the_training_worker() -> None:
    then = step(asked(), Measured(49, 49, 50), LIMITS)
    assert (then.stage, then.training_cores) == (Stage.TRAINING_WORKER_SIZE, 3)


@pytest.mark.parametrize(
    ("throughput", "stage", "left"),
    [
        (30, Stage.DATA_WORKERS, 7),  # two thirds of what was promised: the climb goes on from here
        (22, Stage.DATA_WORKERS, 3),  # 12 of 30 steps/s: worth three of six
        (10.2, Stage.FALLEN_BACK, 0),
        (9, Stage.FALLEN_BACK, 0),
    ],
)
def test_what_is_missed_is_given_back_but_for_what_it_is_worth(
    throughput: float, stage: Stage, left: int
) -> None:
    then = step(asked(), Measured(throughput, throughput, 50), LIMITS)
    assert (then.stage, then.data_workers) == (stage, left)


@pytest.mark.parametrize(
    "predicted",
    [
        Predicted(why="the accelerator binds"),
        Predicted(data_workers=4, throughput=2.0, waits_for_storage=True, why="storage, not CPU"),
    ],
)
def test_a_job_that_they_would_not_help_gets_none_and_its_reason_is_said(
    predicted: Predicted,
) -> None:
    then = asked(predicted)
    assert (then.stage, then.data_workers) == (Stage.PROFILING, 0)
    assert then.why == predicted.why


def test_more_than_the_job_may_have_is_not_promised() -> None:
    few = Limits(training_cores=4, data_worker_cores=4, data_workers=3)
    then = asked(SIX, few)
    assert (then.data_workers, then.promised) == (3, 25)


def test_without_a_model_it_is_tried_as_before() -> None:
    then = step(begin(LIMITS), Measured(10, 10, 50), LIMITS)
    assert then.stage is Stage.DATA_WORKER_SIZE


def tuned():
    return step(asked(), Measured(39, 39, 50), LIMITS)


def after(tuning, number: int, intervals: int = 3, rate: float = 38):
    """Intervals in which a model says that so many data workers do."""
    for _ in range(intervals):
        tuning = step(tuning, Measured(rate, rate, rate), LIMITS, Predicted(number, 1, 4.0))
    return tuning


def test_what_is_not_needed_for_three_intervals_is_given_back_if_throughput_holds() -> None:
    assert after(tuned(), 2, intervals=2).data_workers == 6
    fewer = after(tuned(), 2)
    assert (fewer.stage, fewer.data_workers) == (Stage.FEWER, 2)
    held = step(fewer, Measured(37.5, 37.5, 38), LIMITS)
    assert (held.stage, held.data_workers) == (Stage.TUNED, 2)
    assert after(held, 1).data_workers == 1


def test_one_interval_in_which_all_are_needed_begins_the_count_again() -> None:
    almost = after(tuned(), 2, intervals=2)
    assert after(after(almost, 6, intervals=1), 2, intervals=2).data_workers == 6


def test_what_was_needed_after_all_comes_back_and_is_not_tried_again() -> None:
    back = step(after(tuned(), 2), Measured(30, 30, 50), LIMITS)
    assert (back.stage, back.data_workers) == (Stage.TUNED, 6)
    assert after(back, 2, intervals=20).data_workers == 6


def test_a_job_that_needs_none_any_more_may_have_some_again() -> None:
    none = after(tuned(), 0)
    assert (none.stage, none.data_workers) == (Stage.FEWER, 0)
    fresh = step(none, Measured(38, 38, 38), LIMITS)
    assert (fresh.stage, fresh.data_workers) == (Stage.PROFILING, 0)
    again = step(fresh, Measured(10, 10, 50), LIMITS, SIX)
    assert (again.stage, again.data_workers) == (Stage.PREDICTED, 6)


def test_no_fewer_are_kept_than_the_job_wants() -> None:
    limits = replace(LIMITS, least_data_workers=4)
    tuning = tuned()
    for _ in range(3):
        tuning = step(tuning, Measured(38, 38, 38), limits, Predicted(1, 1, 4.0))
    assert (tuning.stage, tuning.data_workers) == (Stage.FEWER, 4)
    held = step(tuning, Measured(38, 38, 38), limits)
    for _ in range(9):
        held = step(held, Measured(38, 38, 38), limits, Predicted(0, 1, 1.0))
    assert (held.stage, held.data_workers) == (Stage.TUNED, 4)


def test_no_model_gives_nothing_back() -> None:
    tuning = tuned()
    for _ in range(20):
        tuning = step(tuning, Measured(38, 38, 38), LIMITS)
    assert tuning.data_workers == 6


@given(st.lists(st.tuples(st.integers(0, 8), st.floats(30, 40)), max_size=60))
def test_a_tuned_job_changes_no_more_than_once_in_three_intervals(
    seen: list[tuple[int, float]],
) -> None:
    tuning, since = tuned(), 3
    for number, rate in seen:
        then = step(tuning, Measured(rate, rate, rate), LIMITS, Predicted(number, 1, 4.0))
        since += 1
        if then.data_workers < tuning.data_workers:
            assert since > 3
            since = 0
        tuning = then
        if tuning.stage is Stage.PROFILING:
            return


@given(
    st.floats(0, 100),
    st.integers(0, 70),
    st.integers(1, 16),
    st.floats(0.1, 50),
    st.lists(st.floats(0, 200), max_size=12),
)
def test_no_measurement_leads_beyond_the_limits(
    first: float, number: int, cores: int, promised: float, rates: list[float]
) -> None:
    predicted = Predicted(number, cores, promised)
    tuning = step(begin(LIMITS), Measured(first, first, 100), LIMITS, predicted)
    for rate in rates:
        assert 0 <= tuning.data_workers <= LIMITS.data_workers
        assert 0 <= tuning.data_worker_cores <= LIMITS.data_worker_cores
        assert 1 <= tuning.training_cores <= LIMITS.training_cores
        tuning = step(tuning, Measured(rate, rate, 100), LIMITS, predicted)


def behind_a_link(own: float, each: float, link: float, wanted: float) -> Tuning:
    """The end of a job whose own workers make some batches, and whose data workers share a link."""
    limits = Limits(training_cores=1, data_worker_cores=1, data_workers=8)
    number = math.ceil((wanted - own) / each)
    model = Predicted(number, throughput=wanted / own, why="cores")
    tuning = step(begin(limits), Measured(own, own, wanted), limits, model)
    for _ in range(8):
        made = own + link * (1 - math.exp(-tuning.data_workers * each / link))
        rate = min(made, wanted)
        tuning = step(tuning, Measured(rate, rate, wanted), limits)
    return tuning


def test_a_worker_behind_a_link_is_kept_for_what_it_brings_of_the_throughput() -> None:
    tuning = behind_a_link(own=100, each=50, link=70, wanted=285)
    assert tuning.stage is Stage.TUNED
    assert tuning.data_workers == 3, "the third brings a quarter of what it should, and 6 % of all"


def test_what_the_training_pod_makes_itself_is_no_data_workers_part() -> None:
    limits = Limits(training_cores=1, data_worker_cores=1, data_workers=4)
    model = Predicted(2, throughput=2.0, why="cores")
    tuning = step(begin(limits), Measured(100, 100, 400), limits, model)
    climbing = replace(tuning, stage=Stage.DATA_WORKERS, before=150.0)
    then = step(climbing, Measured(200, 200, 400), limits)
    assert then.data_workers == 3, "the second has brought all that was promised of it"


@given(st.floats(1, 500), st.floats(1, 200), st.floats(1, 500), st.floats(1.2, 8))
def test_what_is_given_back_had_brought_less_than_a_thirtieth(
    own: float, each: float, link: float, times: float
) -> None:
    tuning = behind_a_link(own, each, link, own * times)
    if tuning.stage is Stage.TUNED and tuning.why.endswith(f"keep {tuning.data_workers}"):
        number = tuning.data_workers

        def rate(count: int) -> float:
            return min(own + link * (1 - math.exp(-count * each / link)), own * times)

        if f"worker {number + 1} brought" in tuning.why:
            assert rate(number + 1) < (1 + WORTH_RATIO) * rate(number) * (1 + 1e-9)
