"""AllReduce workers are added while they pay and given back when they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.enums import Objective, Role, Stage
from penstock.brain.algorithms.scale_allreduce import (
    MOST_LOOKS,
    ScaleAllReduceParams,
    plan,
    useful_counts,
)
from penstock.brain.planning import Limits, Plan, PlanReason, RoleSpec, Sample
from tests.brain.jobs import NOW, allreduce_samples, applied, history, job

PARAMS = ScaleAllReduceParams()
SPEC = RoleSpec(minimum=1, maximum=8)
CREATED = applied(stage=Stage.CREATE, workers=1, milli_cpu=1000, at=NOW - 1800)


def ask(
    samples: tuple[Sample, ...],
    *,
    workers: int,
    spec: RoleSpec = SPEC,
    limits: Limits | None = None,
    slots: int | None = None,
) -> Plan | None:
    plans = (CREATED,)
    if workers != 1:
        plans = (CREATED, applied(stage=Stage.OPTIMIZE, workers=workers))
    return plan(
        history(samples=samples, plans=plans),
        job(worker=spec, slots=slots),
        limits or Limits(),
        PARAMS,
    )


def test_a_measured_worker_gets_a_second() -> None:
    made = ask(allreduce_samples([(1, [10.0] * 6)]), workers=1)
    assert made is not None
    assert made.stage is Stage.OPTIMIZE
    assert made.roles[Role.WORKER].replicas == 2
    assert made.reason == PlanReason.SCALING_EFFICIENT
    assert made.prediction is not None
    assert 10 <= made.prediction.steps_per_second <= 20


def test_too_little_is_measured() -> None:
    assert ask(allreduce_samples([(1, [10.0] * 3)]), workers=1) is None
    assert ask(allreduce_samples([(1, [0.5] * 4)], interval=5), workers=1) is None


def test_workers_that_pay_are_followed_by_more() -> None:
    made = ask(allreduce_samples([(1, [10.0] * 6), (2, [18.0] * 6)]), workers=2)
    assert made is not None
    assert made.stage is Stage.ADJUST
    assert made.roles[Role.WORKER].replicas == 4


def test_workers_that_do_not_pay_are_given_back() -> None:
    made = ask(allreduce_samples([(1, [10.0] * 6), (2, [11.0] * 6)]), workers=2)
    assert made is not None
    assert made.reason == PlanReason.SCALING_INEFFICIENT
    assert made.roles[Role.WORKER].replicas == 1
    assert made.evidence.figures["efficiency"] == pytest.approx(0.1)


def test_a_count_that_did_not_pay_is_left_alone() -> None:
    runs = [(1, [10.0] * 6), (2, [11.0] * 6), (1, [10.0] * 6)]
    samples = allreduce_samples(runs)
    plans = (CREATED, applied(stage=Stage.ADJUST, workers=1))
    made = plan(
        history(samples=samples, plans=plans), job(worker=RoleSpec(maximum=2)), Limits(), PARAMS
    )
    assert made is None


def test_one_slow_minute_gives_nothing_back() -> None:
    speeds = [18.0, 18.0, 4.0, 5.0, 17.5, 18.2, 18.1, 17.9]
    made = ask(
        allreduce_samples([(1, [10.0] * 6), (2, speeds)]), workers=2, spec=RoleSpec(maximum=2)
    )
    assert made is None


def test_a_doubtful_efficiency_waits() -> None:
    speeds = [12.0, 15.0, 10.0, 16.0, 11.0]
    assert ask(allreduce_samples([(1, [10.0] * 6), (2, speeds)]), workers=2) is None


def test_the_quota_holds() -> None:
    samples = allreduce_samples([(1, [10.0] * 6), (2, [20.0] * 6)])
    made = ask(samples, workers=2, limits=Limits(milli_cpu=3_000))
    assert made is not None
    assert made.roles[Role.WORKER].replicas == 3
    assert ask(samples, workers=2, limits=Limits(milli_cpu=2_000)) is None


def test_a_fixed_count_is_never_planned() -> None:
    assert ask(allreduce_samples([(1, [10.0] * 9)]), workers=1, spec=RoleSpec(fixed=1)) is None


def test_a_plan_under_way_is_waited_for() -> None:
    assert ask(allreduce_samples([(1, [10.0] * 9)]), workers=2) is None


def test_only_counts_that_relieve_the_busiest_worker_are_tried() -> None:
    assert useful_counts(job(worker=RoleSpec(maximum=8), slots=8), 8) == (1, 2, 3, 4, 8)
    assert useful_counts(job(worker=RoleSpec(minimum=3, maximum=5), slots=None), 8) == (3, 4, 5)
    assert useful_counts(job(worker=RoleSpec(minimum=4)), 2) == (4,)
    units = RoleSpec(minimum=2, maximum=8, unit=2)
    assert useful_counts(job(worker=units, slots=None), 7) == (2, 4, 6)


STEPS = [(1, [10.0] * 6), (2, [20.0] * 6), (4, [40.0] * 6), (8, [80.0] * 6)]
WIDE = RoleSpec(maximum=64)


def test_where_the_speed_stops_at_once_the_least_count_for_it_is_tried() -> None:
    made = ask(allreduce_samples([*STEPS, (16, [110.0] * 21)]), workers=16, spec=WIDE)
    assert made is not None
    assert made.reason == PlanReason.PLATEAU
    assert made.roles[Role.WORKER].replicas == 11
    assert made.evidence.figures["plateau_steps_per_second"] == 110
    assert "11 make as much" in made.message


@pytest.mark.parametrize(
    ("objective", "hours", "looks"),
    [(Objective.FASTEST, 1, False), (Objective.FASTEST, 2, True), (None, 1, True)],
)
def test_a_fast_job_looks_for_a_plateau_only_with_time_enough_left(
    objective: Objective | None, hours: int, looks: bool
) -> None:
    samples = allreduce_samples([*STEPS, (16, [110.0] * 21)])
    total = samples[-1].step + round(110.0 * 3600 * hours)
    made = plan(
        history(samples=samples, plans=(CREATED, applied(stage=Stage.OPTIMIZE, workers=16))),
        replace(job(worker=RoleSpec(maximum=16)), objective=objective, total_steps=total),
        Limits(),
        PARAMS,
    )
    assert (made is not None and made.reason == PlanReason.PLATEAU) is looks


def test_a_count_that_makes_as_much_is_kept() -> None:
    runs = [*STEPS, (16, [110.0] * 6), (12, [110.0] * 6)]
    assert ask(allreduce_samples(runs), workers=12, spec=WIDE) is None


def ask_at_plateau(runs: Sequence[tuple[int, Sequence[float]]], looks: int = 1) -> Plan | None:
    """Under the last of so many plans for a plateau."""
    last = replace(applied(stage=Stage.ADJUST, workers=runs[-1][0]), reason=PlanReason.PLATEAU)
    return plan(
        history(samples=allreduce_samples(runs), plans=(CREATED, *(last,) * looks)),
        job(worker=WIDE),
        Limits(),
        PARAMS,
    )


def test_a_count_that_makes_less_is_followed_by_one_between() -> None:
    runs = [*STEPS, (16, [110.0] * 6), (12, [100.0] * 6)]
    for made in (ask(allreduce_samples(runs), workers=12, spec=WIDE), ask_at_plateau(runs)):
        assert made is not None
        assert 12 < (made.roles[Role.WORKER].replicas or 0) < 16


def test_samples_are_waited_for_before_a_plateau_is_believed() -> None:
    """By three of them that vary by 4 % a worker too few looks like enough."""
    few, many = [114.0, 106.0, 110.0, 115.0], [114.0, 106.0, 110.0, 115.0, 105.0] * 9
    assert ask(allreduce_samples([*STEPS, (16, few)]), workers=16, spec=WIDE) is None
    made = ask(allreduce_samples([*STEPS, (16, many)]), workers=16, spec=WIDE)
    assert made is not None
    assert made.roles[Role.WORKER].replicas in {11, 12}


def test_a_worker_too_few_is_found_where_samples_vary() -> None:
    noisy = [105.0, 98.0, 101.0, 106.0, 97.0]
    made = ask_at_plateau([*STEPS, (16, [105.0] * 20), (10, noisy * 9)])
    assert made is not None
    assert made.roles[Role.WORKER].replicas == 11


def test_after_some_looks_a_count_that_was_measured_is_kept() -> None:
    runs = [*STEPS, (16, [110.0] * 6), (12, [100.0] * 6), (13, [104.0] * 6)]
    last = [ask_at_plateau(runs, looks) for looks in (MOST_LOOKS - 1, MOST_LOOKS)]
    chosen = [made.roles[Role.WORKER].replicas if made else None for made in last]
    assert chosen[0] in {14, 15}
    assert chosen[1] == 16


def test_after_workers_were_given_back_no_more_are_tried() -> None:
    """What showed it is no longer in the window, the plan that followed from it is."""
    samples = allreduce_samples([(12, [110.0] * 40)])
    last = applied(stage=Stage.ADJUST, workers=12, at=NOW - 3600)

    def ask_after(reason: str, samples: tuple[Sample, ...] = samples) -> Plan | None:
        plans = (CREATED, replace(last, reason=reason))
        return plan(
            history(samples=samples, plans=plans),
            job(worker=WIDE),
            Limits(),
            ScaleAllReduceParams(),
        )

    assert ask_after(PlanReason.SCALING_EFFICIENT) is not None
    assert ask_after(PlanReason.PLATEAU) is None
    assert ask_after(PlanReason.SCALING_INEFFICIENT) is None
    faster = allreduce_samples([(12, [110.0] * 20 + [150.0] * 20)])
    assert ask_after(PlanReason.PLATEAU, faster) is not None, "whatever limited it is gone"


def test_a_plateau_is_believed_for_some_hours_and_then_more_workers_are_tried() -> None:
    samples = allreduce_samples([(12, [110.0] * 20)])
    found = {}
    for hours in (5, 7):
        at = NOW - 3600 * hours
        last = replace(applied(stage=Stage.ADJUST, workers=12, at=at), reason=PlanReason.PLATEAU)
        past = history(samples=samples, plans=(CREATED, last))
        found[hours] = plan(past, job(worker=WIDE), Limits(), PARAMS)
    assert found[5] is None
    assert found[7] is not None
    assert (found[7].roles[Role.WORKER].replicas or 0) > 12


@settings(max_examples=40, deadline=None)
@given(
    serial=st.floats(0.0, 0.8),
    noise=st.floats(0.0, 0.15),
    seed=st.integers(0, 2**16),
    cores=st.integers(1, 8),
)
def test_a_noisy_run_settles_where_workers_stop_paying(
    serial: float, noise: float, seed: int, cores: int
) -> None:
    """On a machine of few cores with noise the count comes to a rest."""
    rng = np.random.default_rng(seed)

    def speed(workers: int) -> float:
        parallel = min(workers, cores)
        return 10.0 / (serial + (1 - serial) / parallel) * float(rng.lognormal(0, noise))

    runs: list[tuple[int, list[float]]] = []
    plans = [CREATED]
    workers, changes = 1, 0
    for _ in range(80):
        if not runs or runs[-1][0] != workers:
            runs.append((workers, []))
        runs[-1][1].append(speed(workers))
        made = plan(
            history(samples=allreduce_samples(runs), plans=tuple(plans)),
            job(worker=SPEC, slots=8),
            Limits(),
            PARAMS,
        )
        if made is not None:
            workers = made.roles[Role.WORKER].replicas or 0
            assert 1 <= workers <= 8
            plans.append(applied(stage=made.stage, workers=workers))
            changes += 1
    assert changes <= 10
    tried = {count for count, _ in runs}
    assert max(tried) <= 4 * cores, "no count far beyond the cores is worth a trial"
