"""A job that waits for input can use data workers; the scheduler decides about them."""

from __future__ import annotations

import pytest

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms.data_workers import DataWorkersParams, plan
from penstock.brain.planning import AppliedPlan, Limits, Plan
from tests.brain.jobs import NOW
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, waiting


def ask(wait: float | None, *plans: AppliedPlan, quota: int | None = None) -> Plan | None:
    """Four workers that use 2 cores each."""
    limits = Limits(milli_cpu=None if quota is None else quota * 1000)
    history = ps_history(waiting(wait), in_force_plan(4, 3, 1, 8), *plans)
    return plan(history, ps_job(), limits, DataWorkersParams())


@pytest.mark.parametrize("wait", [None, 0.0, 0.04])
def test_input_that_keeps_up_needs_none(wait: float | None) -> None:
    assert ask(wait) is None


def test_what_is_missing_is_asked_for() -> None:
    made = ask(0.5)
    assert made is not None
    assert made.roles == {}
    assert made.data_workers is not None
    # Waiting half of the time, 8 cores of input would have to be 16: 8 more.
    assert (made.data_workers.replicas, made.data_workers.milli_cpu) == (8, 1000)
    assert made.stage is Stage.OPTIMIZE


def test_the_quota_bounds_the_demand() -> None:
    made = ask(0.5, quota=25)
    assert made is not None
    assert made.data_workers is not None
    assert made.data_workers.replicas == 5
    assert ask(0.5, quota=20) is None


def test_the_same_demand_is_not_planned_again() -> None:
    made = ask(0.5)
    assert made is not None
    before = AppliedPlan(
        applied_seconds=NOW - 60,
        settled_seconds=NOW - 60,
        roles={Role.WORKER: in_force_plan(4, 3, 1, 8).roles[Role.WORKER]},
        stage=Stage.ADJUST,
        data_workers=made.data_workers,
    )
    assert ask(0.5, before) is None
