"""Samples are grouped by configuration, and only settled ones count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.base.enums import Role, Stage
from penstock.brain.model.measurement import measurements, settled
from penstock.brain.planning import Sample
from tests.brain.jobs import NOW
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, run_of

ALONE = {"speed": 10.0, "workers": 1, "worker_cores": 8.0, "worker_used": 2.0}
FOUR = {"speed": 36.0, "workers": 4, "worker_cores": 3.0, "worker_used": 1.8}
SERVERS = [(16.0, 4.0), (16.0, 1.0)]


def test_each_configuration_is_one_measurement_without_its_first_sample() -> None:
    samples = (
        *run_of(4, end=NOW - 200, servers=SERVERS, **ALONE),
        *run_of(5, servers=SERVERS, **FOUR),
    )
    first, second = measurements(ps_history(samples), ps_job())
    assert (first.workers, first.samples) == (1, 3)
    assert (second.workers, second.samples) == (4, 4)
    assert second.steps_per_second == 36.0
    assert second.server_used_cores == (4.0, 1.0)
    assert second.cores == 4 * 3 + 32


def test_a_measurement_counts_once_the_plan_is_in_force() -> None:
    samples = run_of(5, servers=SERVERS, **FOUR)
    plan = in_force_plan(4, 3, 2, 16)
    found = settled(ps_history(samples, plan), ps_job(), 3)
    assert found is not None
    assert found.workers == 4
    assert settled(ps_history(samples, plan), ps_job(), 9) is None, "too few samples"
    assert settled(ps_history(samples), ps_job(), 3) is None, "no plan"
    other = in_force_plan(8, 3, 2, 16)
    assert settled(ps_history(samples, other), ps_job(), 3) is None, "pods are still to come"


def test_sizes_that_agents_do_not_know_come_from_the_plan() -> None:
    plain = run_of(4, servers=SERVERS, **FOUR)
    samples = tuple(
        type(sample)(
            time_seconds=sample.time_seconds,
            step=1,
            steps_per_second=sample.steps_per_second,
            roles={
                role: {
                    rank: type(row)(milli_cpu=row.milli_cpu)
                    for rank, row in sample.ranks(role).items()
                }
                for role in (Role.WORKER, Role.PS)
            },
        )
        for sample in plain
    )
    plan = in_force_plan(4, 3, 2, 16, stage=Stage.OPTIMIZE)
    (found,) = measurements(ps_history(samples, plan), ps_job())
    assert (found.worker_cores, found.server_cores) == (3.0, (16.0, 16.0))
    assert measurements(ps_history(samples), ps_job()) == ()


def test_one_wild_sample_moves_nothing() -> None:
    samples = list(run_of(7, servers=SERVERS, **FOUR))
    samples[3] = run_of(1, end=samples[3].time_seconds, servers=SERVERS, **(FOUR | {"speed": 1.0}))[
        0
    ]
    (found,) = measurements(ps_history(tuple(samples)), ps_job())
    assert found.steps_per_second == pytest.approx(36.0)


def test_samples_in_which_workers_are_starting_measure_nothing() -> None:
    def starting(sample: Sample) -> Sample:
        rows = dict(sample.ranks(Role.WORKER))
        rows[3] = replace(rows[3], step_seconds=None)
        return replace(sample, roles={**sample.roles, Role.WORKER: rows})

    slower = run_of(4, end=NOW - 75, servers=SERVERS, **(FOUR | {"speed": 9.0}))
    samples = (*map(starting, slower), *run_of(5, servers=SERVERS, **FOUR))
    (found,) = measurements(ps_history(samples), ps_job())
    assert (found.samples, found.steps_per_second) == (4, 36.0)
    early = settled(
        ps_history((*samples[:4], *samples[4:7]), in_force_plan(4, 3, 2, 16)), ps_job(), 3
    )
    assert early is None, "three samples with all of them are too few"
