"""A demand for data workers that a model of the job's input makes at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.base.enums import Role, Stage
from penstock.brain.algorithms import data_workers, offload
from penstock.brain.planning import AppliedPlan, History, Limits, Plan
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import Profile, Storage
from penstock.throughput.profiles.stage import StageCost
from tests.brain.jobs import NOW
from tests.brain.psjobs import in_force_plan, ps_history, ps_job, waiting
from tests.throughput.programs import STARVING


def history(profile: Profile | None, *plans: AppliedPlan) -> History:
    return replace(ps_history(waiting(0.6), in_force_plan(4, 3, 1, 8), *plans), profile=profile)


def ask(profile: Profile | None, *plans: AppliedPlan, limits: Limits | None = None) -> Plan | None:
    asked = history(profile, *plans)
    return offload.plan(asked, ps_job(), limits or Limits(), offload.OffloadParams())


def carried_out(made: Plan, seconds: float = 200) -> AppliedPlan:
    return AppliedPlan(
        applied_seconds=NOW - seconds,
        settled_seconds=NOW - seconds,
        roles={Role.WORKER: in_force_plan(4, 3, 1, 8).roles[Role.WORKER]},
        stage=Stage.ADJUST,
        data_workers=made.data_workers,
    )


def test_it_asks_for_all_at_once_and_says_what_they_promise() -> None:
    made = ask(STARVING)
    assert made is not None
    assert made.data_workers is not None
    assert made.data_workers.replicas >= 2
    assert made.reason == "PredictedGain"
    assert made.prediction is not None
    assert made.prediction.steps_per_second > 30
    assert made.prediction.error_steps_per_second > 0
    assert made.evidence.figures["rate_without"] == 18.0


def test_the_same_demand_is_not_planned_again_and_one_that_is_over_is_taken_back() -> None:
    made = ask(STARVING)
    assert made is not None
    assert ask(STARVING, carried_out(made)) is None
    calm = replace(STARVING, stalled=0.01, step=Measured(0.055, 0.054, 0.056, 1))
    assert ask(calm, carried_out(made, 60)) is None
    back = ask(calm, carried_out(made))
    assert back is not None
    assert back.data_workers is not None
    assert back.data_workers.replicas == 0


def test_more_is_demanded_only_where_it_promises_more() -> None:
    made = ask(STARVING)
    assert made is not None
    assert made.data_workers is not None
    number = made.data_workers.replicas
    one = replace(made, data_workers=replace(made.data_workers, replicas=1))
    more = ask(STARVING, carried_out(one))
    assert more is not None
    assert more.data_workers is not None
    assert more.data_workers.replicas == number
    # Quicker steps want one data worker more: for 2.5 % it is not worth it, for 8 % it is.
    quicker = replace(STARVING, step=Measured(0.018, 0.017, 0.019, 1))
    assert ask(quicker, carried_out(made)) is None
    quicker = replace(STARVING, step=Measured(0.017, 0.016, 0.018, 1))
    more = ask(quicker, carried_out(made))
    assert more is not None
    assert more.data_workers is not None
    assert more.data_workers.replicas == number + 1


@pytest.mark.parametrize(
    "profile",
    [
        None,
        replace(STARVING, stalled=0.01),
        replace(
            STARVING,
            stages=(StageCost("dataset", "opaque", 0.01, 0.1, bytes_out=1e6),),
            storage=Storage(bytes_per_sample=5e6, hits=0.0),
        ),
    ],
    ids=["without a profile", "one that does not wait", "one that waits for storage"],
)
def test_where_it_would_not_help_nothing_is_planned(profile: Profile | None) -> None:
    assert ask(profile) is None


def test_the_quota_bounds_the_demand() -> None:
    made = ask(STARVING, limits=Limits(milli_cpu=21_000))
    assert made is not None
    assert made.data_workers is not None
    assert made.data_workers.replicas == 1
    assert made.prediction is None


def test_the_rule_of_thumb_leaves_a_job_with_a_profile_to_the_model() -> None:
    params = data_workers.DataWorkersParams()
    assert data_workers.plan(history(None), ps_job(), Limits(), params) is not None
    assert data_workers.plan(history(STARVING), ps_job(), Limits(), params) is None
