from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler.tuning import (
    BUSY_RATIO,
    FALLBACK_INTERVALS,
    Limits,
    Measured,
    Stage,
    Tuning,
    begin,
    step,
)
from penstock.sim.cluster.experiments.tuning import measure, trace

LIMITS = Limits()


def run(speed_of: dict[str, float], intervals: int = 60) -> Tuning:
    """Tune a job whose data rate per core falls to `sublinear` beyond `linear_cores` a worker."""
    tuning = begin(LIMITS)
    for _ in range(intervals):
        cores = tuning.data_worker_cores
        linear = min(cores, speed_of["linear_cores"])
        rate = tuning.data_workers * (linear + 0.2 * (cores - linear))
        enqueue = rate if tuning.data_workers else speed_of["baseline"]
        throughput = min(enqueue, speed_of["ideal"])
        tuning = step(tuning, Measured(throughput, enqueue, speed_of["ideal"]), LIMITS)
    return tuning


def test_the_three_steps_of_figure_13_end_as_in_the_paper() -> None:
    lines = list(trace())
    stages = list(dict.fromkeys(line.stage for line in lines))
    assert stages == [
        Stage.PROFILING,
        Stage.DATA_WORKER_SIZE,
        Stage.DATA_WORKERS,
        Stage.TRAINING_WORKER_SIZE,
        Stage.TUNED,
    ]
    last = lines[-1]
    assert (last.data_workers, last.data_worker_cores, last.training_cores) == (3, 8, 3)
    assert last.steps_per_second == pytest.approx(10)


def test_the_last_linear_size_is_the_maximum_size() -> None:
    tuning = run({"linear_cores": 4, "ideal": 12.0, "baseline": 3.0})
    assert tuning.max_data_worker_cores == 4
    assert tuning.data_workers == 3


def test_one_worker_that_fills_the_queue_is_enough() -> None:
    tuning = run({"linear_cores": 8, "ideal": 3.0, "baseline": 3.0})
    assert (tuning.data_workers, tuning.data_worker_cores) == (1, 3)


def test_a_job_that_stays_behind_its_baseline_falls_back() -> None:
    tuning = begin(LIMITS)
    tuning = step(tuning, Measured(10.0, 10.0, 10.0), LIMITS)
    for interval in range(FALLBACK_INTERVALS):
        assert tuning.stage is not Stage.FALLEN_BACK, interval
        refused = Measured(1.0, 1.0, 10.0, granted=False)
        tuning = step(tuning, refused, LIMITS)
    assert tuning.stage is Stage.FALLEN_BACK
    assert (tuning.data_workers, tuning.training_cores) == (0, LIMITS.training_cores)
    assert step(tuning, Measured(1.0, 1.0, 1.0), LIMITS) == tuning


@pytest.mark.parametrize(("speed", "kept"), [(10.5, 2), (8.5, 2), (8.3, 1), (5.0, 1)])
def test_a_worker_that_brings_half_of_what_it_should_is_kept_and_is_the_last(
    speed: float, kept: int
) -> None:
    limits = Limits(data_worker_cores=1, data_workers=8)
    tuning = step(begin(limits), Measured(4.0, 4.0, 20.0), limits)
    tuning = step(tuning, Measured(5.6, 5.6, 20.0), limits)
    assert tuning.data_workers == 2
    tuning = step(tuning, Measured(speed, speed, 20.0), limits)
    assert (tuning.stage, tuning.data_workers) == (Stage.TUNED, kept)


def test_what_was_not_granted_is_asked_for_again() -> None:
    tuning = step(begin(LIMITS), Measured(1.0, 1.0, 9.0), LIMITS)
    waiting = step(tuning, Measured(1.0, 1.0, 9.0, granted=False), LIMITS)
    assert waiting.data_worker_cores == tuning.data_worker_cores
    assert waiting.why.startswith("wait")


def test_a_job_allowed_one_data_worker_of_one_core_gets_no_second() -> None:
    limits = Limits(training_cores=1, data_worker_cores=1, data_workers=1)
    tuning = step(begin(limits), Measured(1.0, 1.0, 9.0), limits)
    tuning = step(tuning, Measured(1.0, 1.0, 9.0), limits)
    assert (tuning.stage, tuning.data_workers) == (Stage.TUNED, 1)


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_rates_that_are_no_numbers_change_nothing(rate: float) -> None:
    tuning = step(begin(LIMITS), Measured(1.0, 1.0, 9.0), LIMITS)
    after = step(tuning, Measured(rate, 1.0, 9.0), LIMITS)
    assert (after.stage, after.data_cores, after.intervals) == (tuning.stage, 1, tuning.intervals)


RATES = st.floats(0, 100) | st.just(math.nan)


@given(
    measurements=st.lists(st.builds(Measured, RATES, RATES, RATES, st.booleans()), max_size=80),
    limits=st.builds(Limits, st.integers(1, 8), st.integers(1, 8), st.integers(1, 6)),
)
def test_whatever_is_measured_the_limits_hold(measurements: list[Measured], limits: Limits) -> None:
    tuning = begin(limits)
    for measured in measurements:
        tuning = step(tuning, measured, limits)
        assert 1 <= tuning.training_cores <= limits.training_cores
        assert 0 <= tuning.data_worker_cores <= limits.data_worker_cores
        assert 0 <= tuning.data_workers <= limits.data_workers
        assert 0 <= tuning.surplus_cores <= limits.training_cores - tuning.training_cores


def test_the_model_without_data_workers_uses_the_training_cores_for_both() -> None:
    assert measure(begin(LIMITS)).throughput == pytest.approx(10 * 8 / 27)


def cores_of(
    busy: float, scaling: float, most: int = 6, ideal: float = 100.0, workers: float = 4.0
) -> list[Tuning]:
    """A job whose training worker of 4 cores does what it does for each batch, in vain after 4."""
    limits = Limits(training_cores=4, data_worker_cores=1, most_training_cores=most)
    states = [begin(limits)]
    for _ in range(20):
        tuning = states[-1]
        own = 10.0 * (tuning.training_cores / 4) ** scaling
        rate = min(own, workers * max(1, tuning.data_workers), ideal)
        states.append(step(tuning, Measured(rate, rate, ideal, True, busy), limits))
    return states


def test_a_busy_training_worker_gets_cores_where_more_data_workers_bring_little() -> None:
    states = cores_of(busy=0.95, scaling=1.0, most=6)
    last = states[-1]
    assert (last.stage, last.training_cores, last.data_workers) == (Stage.TUNED, 5, 3)
    assert "back to 5" in last.why, "three data workers feed no more than five cores take"
    assert any("core 5 brought 0.80 of linear: kept" in one.why for one in states)


def test_a_core_that_brings_too_little_is_taken_back() -> None:
    last = cores_of(busy=0.95, scaling=0.2)[-1]
    assert (last.stage, last.training_cores) == (Stage.TUNED, 4)
    assert "back to 4" in last.why


@pytest.mark.parametrize(("busy", "most"), [(0.5, 6), (0.95, 4), (0.95, 0)])
def test_one_that_has_cores_to_spare_or_may_have_no_more_gets_none(busy: float, most: int) -> None:
    states = cores_of(busy=busy, scaling=1.0, most=most)
    assert states[-1].stage is Stage.TUNED
    assert all(one.training_cores == 4 for one in states)


@given(
    busy=st.floats(0, 1),
    scaling=st.floats(0, 1.2),
    most=st.integers(0, 12),
    ideal=st.floats(5, 100),
    workers=st.floats(0.5, 12),
)
def test_training_cores_stay_in_bounds_and_never_cost_throughput(
    busy: float, scaling: float, most: int, ideal: float, workers: float
) -> None:
    states = cores_of(busy, scaling, most, ideal, workers)
    assert all(1 <= one.training_cores <= max(4, most) for one in states)
    grown = [one for one in states if one.stage is Stage.MORE_TRAINING_CORES]
    assert not grown or (busy >= BUSY_RATIO and most > 4)
