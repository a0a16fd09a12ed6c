from __future__ import annotations

import numpy as np
import pytest

from penstock.scheduler.policies.registry import ALLOCATION_POLICY_NAMES, make_allocation_policy
from penstock.sim.cluster.experiments.table5 import (
    BASELINE,
    Table5Row,
    approaches,
    load_trace,
    predicted_goals,
    simulate,
)
from penstock.sim.cluster.experiments.training import Approach, Cluster
from penstock.sim.cluster.job_mix import Model, TrainingJob, draw_jobs
from penstock.sim.errors import SimulationError

HUNGRY = Model("hungry", 16_000)
MODEST = Model("modest", 4_000)


def job(name: str, at: float, steps: float, gpus: int, model: Model = MODEST) -> TrainingJob:
    return TrainingJob(name, at, steps, gpus, model)


def test_a_tuned_job_takes_as_long_as_it_has_steps() -> None:
    outcome = Cluster(Approach("tuned"), 1, 8, 64_000).run([job("a", 60.0, 600.0, 2, HUNGRY)])
    assert outcome.jct_minutes == pytest.approx(10)
    assert outcome.queue_minutes == 0
    assert outcome.gpu_allocation == pytest.approx(100 * 600 * 2 / (500 * 60 * 8))


def test_too_few_cores_slow_a_job_in_proportion() -> None:
    outcome = Cluster(Approach("hardware", 8000), 1, 8, 64_000).run(
        [job("a", 0.0, 600.0, 2, HUNGRY)]
    )
    assert outcome.jct_minutes == pytest.approx(20)


def test_first_come_first_served_even_where_a_later_job_would_fit() -> None:
    jobs = [job("a", 0.0, 600.0, 6), job("b", 1.0, 600.0, 4), job("c", 2.0, 60.0, 1)]
    outcome = Cluster(Approach("tuned"), 1, 8, 64_000).run(jobs)
    # b and c wait for a: queueing is (0 + 599 + 598) seconds.
    assert outcome.queue_minutes == pytest.approx((599 + 598) / 3 / 60)


@pytest.mark.parametrize("name", ALLOCATION_POLICY_NAMES)
def test_a_lone_elastic_job_grows_to_nearly_full_speed(name: str) -> None:
    elastic = Approach(name, 3000, policy=make_allocation_policy(name))
    outcome = Cluster(elastic, 2, 8, 64_000).run([job("a", 0.0, 36_000.0, 4, HUNGRY)])
    assert 600 <= outcome.jct_minutes < 606


@pytest.mark.parametrize("name", ALLOCATION_POLICY_NAMES)
def test_an_incoming_job_gets_its_cores_from_data_workers(name: str) -> None:
    """The first job's data workers hold every core; the second one starts at once all the same."""
    elastic = Approach(name, 3000, policy=make_allocation_policy(name))
    jobs = [job("a", 0.0, 36_000.0, 4, Model("huge", 64_000)), job("b", 9000.0, 600.0, 4)]
    outcome = Cluster(elastic, 1, 8, 64_000).run(jobs)
    assert outcome.queue_minutes == 0


def test_every_approach_ends_every_job_and_leaves_an_empty_cluster() -> None:
    jobs = draw_jobs(load_trace(None), 0.7, 64, np.random.default_rng(5))
    for approach in approaches():
        cluster = Cluster(approach, 8, 8, 64_000)
        assert cluster.run(jobs).jobs == len(jobs)
        columns = cluster.columns
        rows = columns.rows()
        assert np.array_equal(columns.free_milli_cpu[rows], columns.total_milli_cpu[rows])
        free = columns.free_accelerator_milli[rows]
        assert np.array_equal(free, columns.total_accelerator_milli[rows])


def test_the_load_is_what_was_asked_for() -> None:
    jobs = draw_jobs(load_trace(None), 1.5, 64, np.random.default_rng(1))
    work = sum(job.steps * job.gpus for job in jobs)
    last = max(job.steps * job.gpus for job in jobs)
    assert 1.5 * 64 * 8 * 3600 <= work < 1.5 * 64 * 8 * 3600 + last
    assert all(0 <= job.submitted_seconds < 8 * 3600 for job in jobs)


def test_a_trace_without_usable_jobs_is_refused() -> None:
    with pytest.raises(SimulationError, match="no job of at least a minute"):
        draw_jobs([], 1.0, 64, np.random.default_rng(1))


def test_elastic_data_workers_beat_the_tuned_baseline_where_it_queues() -> None:
    rows = {row.policy: row for row in simulate(load_trace(None), [1.0], [0, 1])}
    assert rows[BASELINE].gain == 1
    for name in ALLOCATION_POLICY_NAMES:
        assert rows[name].gain > 1.3
        assert rows[name].queue_minutes < rows[BASELINE].queue_minutes
    assert rows["LeastWork"].jct_minutes < rows["ShortestRemaining"].jct_minutes


@pytest.mark.parametrize(("gain", "growths", "ok"), [(2.2, 2, True), (2.05, 3, False)])
def test_a_model_is_held_to_what_it_brings_the_same_policy(
    gain: float, growths: float, ok: bool
) -> None:
    rows = [
        Table5Row(0.5, "Fair", 100.0, 2.0, 0.1, 1.0, 50.0, 2, 6.0),
        Table5Row(0.5, "Fair, predicted", 95.0, gain, 0.1, 1.0, 50.0, 2, growths),
        Table5Row(1.0, "Fair", 100.0, 2.0, 0.1, 1.0, 50.0, 2, 6.0),
    ]
    goals = predicted_goals(rows)
    assert [one.ok for one in goals] == [ok, ok]
    assert "growing takes 3.0% of a JCT" in goals[1].name
