"""What a job will have cost, and which plans its budget bears."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import Objective, Role, Stage
from penstock.brain.algorithms import scale_allreduce, to_objective
from penstock.brain.algorithms.scale_allreduce import ScaleAllReduceParams
from penstock.brain.algorithms.to_objective import ToObjectiveParams
from penstock.brain.model import budget
from penstock.brain.model.objective import Aim, aim
from penstock.brain.planning import (
    History,
    JobDescription,
    Limits,
    Plan,
    PlanReason,
    Prediction,
    RankPlan,
    RolePlan,
    RolePods,
    RoleSpec,
    Spending,
)
from tests.brain.jobs import NOW, allreduce_samples, applied, history, job

GIB = 1024**3
PODS = RolePods(count=2, milli_cpu=4000.0, memory_bytes=8.0 * GIB, accelerators=1.0)
SPENDING = Spending(
    currency="EUR",
    core_hour=0.5,
    gib_hour=0.25,
    accelerator_hour=6.0,
    spent=10.0,
    pods={Role.WORKER: PODS},
    steps_left=36_000,
    prediction=Prediction(steps_per_second=10.0, error_steps_per_second=2.0),
)
"""Two pods of 10 EUR an hour each, and an hour to go."""


def limited(amount: float | None, **changes: object) -> JobDescription:
    made = job(worker=RoleSpec(maximum=16))
    return replace(made, budget=amount, **changes)  # type: ignore[arg-type]  # any of its fields


def known(**changes: object) -> History:
    spending = replace(SPENDING, **changes)  # type: ignore[arg-type]  # any of its fields
    return replace(history(), spending=spending)


def workers(count: int) -> dict[Role, RolePlan]:
    return {Role.WORKER: RolePlan(replicas=count)}


def predicted(speed: float, error: float = 0.0) -> Prediction:
    return Prediction(steps_per_second=speed, error_steps_per_second=error)


def test_the_cost_is_what_was_spent_and_what_the_rest_takes() -> None:
    cost = budget.staying(known(), limited(100))
    assert cost is not None
    assert cost.value == pytest.approx(10 + 20)
    assert cost.low == pytest.approx(10 + 20 * 10 / 12)
    assert cost.high == pytest.approx(10 + 20 * 10 / 8)
    assert cost.in_words("EUR") == "30.00 EUR (26.67 to 35.00)"
    slower = budget.becoming(workers(4), predicted(10.0, 10.0), known(), limited(100))
    assert slower is not None
    assert slower.value == pytest.approx(10 + 40 + 40 / 60), "the change is paid as well"
    assert slower.high is None, "it may make nothing at all"


def test_sizes_that_a_plan_says_count_and_accelerators_stay() -> None:
    own = RolePlan(replicas=3, milli_cpu=2000, ranks={2: RankPlan(milli_cpu=6000)})
    hour = budget.hourly_cost(SPENDING, {Role.WORKER: own})
    assert hour == pytest.approx((2 + 2 + 6) * 0.5 + 3 * 8 * 0.25 + 3 * 6.0)
    more = budget.hourly_cost(SPENDING, {Role.DATA_WORKER: RolePlan(replicas=2, milli_cpu=1000)})
    assert more == pytest.approx(20 + 2 * 0.5)


def test_a_plan_that_costs_more_than_the_budget_and_than_to_stay_is_refused() -> None:
    dear = Plan(
        stage=Stage.OPTIMIZE,
        algorithm="a",
        roles=workers(4),
        reason="Better",
        message="it is faster",
        prediction=predicted(15.0, 1.0),
    )
    why = budget.refusal(dear, known(), limited(35))
    assert "37.33 EUR (35.67 to 39.24), its budget is 35 EUR" in why
    assert budget.refusal(dear, known(), limited(38)) == ""
    cheap = replace(dear, roles=workers(1), prediction=predicted(6.0))
    assert budget.refusal(cheap, known(), limited(20)) == "", "over, and less than to stay"
    assert budget.refusal(replace(dear, prediction=None), known(), limited(1)) == ""
    assert budget.refusal(dear, known(), limited(None)) == ""
    assert budget.refusal(dear, replace(known(), spending=None), limited(35)) == ""


@pytest.mark.parametrize("objective", [None, *Objective])
def test_over_the_budget_less_is_planned_for_and_where_it_is_spent_the_cheapest(
    objective: Objective | None,
) -> None:
    about = {"objective": objective, "total_steps": 100_000, "deadline_seconds": NOW + 1000}
    assert aim(known(), limited(29, **about)) == Aim(within_budget=True)
    assert aim(known(), limited(30.3, **about)) == Aim(within_budget=True), "within the margin"
    assert aim(known(spent=31.0), limited(31, **about)) == Aim(cheapest=True)
    assert aim(known(steps_left=None, spent=5.0), limited(5, **about)) == Aim(cheapest=True)
    within = limited(31, **about)
    assert aim(known(), within) == aim(known(), replace(within, budget=None))


def test_what_the_owner_is_told_has_the_figure_and_its_range() -> None:
    assert budget.warning(known(), limited(31)) == ""
    told = budget.warning(known(), limited(25))
    assert told == (
        "the job is expected to cost more than its budget of 25 EUR: 30.00 EUR (26.67 to 35.00) at "
        "its end; it trains on with fewer resources, as far as there are fewer"
    )
    spent = budget.warning(known(spent=26.5), limited(25))
    assert spent.startswith("the job has cost 26.50 EUR, all of its budget of 25 EUR: 46.50 EUR")


def test_a_budget_without_prices_says_what_to_do() -> None:
    told = budget.warning(replace(known(), spending=None), limited(25))
    assert "spec.budget = 25 changes nothing: the Brain has no prices" in told
    assert budget.warning(replace(known(), spending=None), limited(None)) == ""


def growing(amount: float | None) -> Plan | None:
    """A job on one worker at 10 steps/s, which may have 16, asked as the Brain does."""
    pods = {Role.WORKER: replace(PODS, count=4)}
    spending = replace(SPENDING, pods=pods, prediction=predicted(40.0, 1.0), steps_left=360_000)
    found = history(
        samples=allreduce_samples([(4, [40.0] * 8)]),
        plans=(applied(stage=Stage.CREATE, workers=4),),
    )
    found = replace(found, spending=spending)
    wanted = limited(amount, objective=Objective.FASTEST)
    made = to_objective.plan(found, wanted, Limits(), ToObjectiveParams())
    return made or scale_allreduce.plan(found, wanted, Limits(), ScaleAllReduceParams())


def test_instead_of_more_workers_than_the_budget_bears_fewer_are_taken() -> None:
    assert (free := growing(None)) is not None
    assert free.roles[Role.WORKER].replicas == 8
    assert (bound := growing(126)) is not None, "10 spent, 100 more as it is"
    assert bound.roles[Role.WORKER].replicas == 5, "the runner-up"
    assert (tight := growing(100)) is not None
    assert (tight.algorithm, tight.reason) == ("to_objective", PlanReason.BUDGET)
    assert tight.roles[Role.WORKER].replicas == 2, "a step down"


@given(
    st.floats(0.1, 1000),
    st.floats(0, 100),
    st.integers(0, 10**6),
    st.integers(1, 64),
    st.floats(0.1, 100),
    st.floats(0, 100),
)
def test_what_the_budget_bears_is_within_it_or_no_dearer_than_to_stay(
    amount: float, spent: float, left: int, count: int, speed: float, error: float
) -> None:
    found, wanted = known(spent=spent, steps_left=left), limited(amount)
    prediction = predicted(speed, error)
    now = budget.becoming({}, SPENDING.prediction, found, wanted)
    then = budget.becoming(workers(count), prediction, found, wanted)
    assert now is not None
    assert then is not None
    assert then.low <= then.value
    assert then.high is None or then.value <= then.high
    bears = budget.bears(workers(count), prediction, found, wanted)
    assert bears == (then.value <= max(amount, now.value))
    assert budget.bears(workers(2), found.spending.prediction if found.spending else None, found,
                        wanted)  # fmt: skip  # to stay is always borne
