"""What a job will have cost when its steps are done, and whether its budget bears a plan.

    cost = spent so far + steps left / steps per second * what its pods cost per second

The budget is the user's (`spec.budget`), the prices are the Brain's. A plan that is expected to
cost more than the budget is not taken, unless it costs no more than to stay. Where the job is
expected to cost more than its budget as it is, fewer resources are planned for, and where it has,
the cheapest steps (`penstock.brain.model.objective`).

Guarantee: no job is ended for its budget, and no plan is held that says nothing of speed, as one
that saves a pod from running out of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import Role
from penstock.brain.model.prices import HOUR, hourly
from penstock.brain.planning import (
    History,
    JobDescription,
    Plan,
    Prediction,
    RolePlan,
    Spending,
)

CHANGE_SECONDS: Final = 60.0
"""Of training that a change of the resources is taken to cost."""
MARGIN: Final = 0.02
"""Of the money that is left, kept for what is not foreseen: changes, and errors of the speed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a job is expected to have cost at its end; nine in ten speeds lie within the range."""

    value: float
    low: float
    high: float | None
    """None: nothing bounds it, as the speed may be none at all."""

    def in_words(self, currency: str) -> str:
        """The figure and its range."""
        most = "any amount" if self.high is None else f"{self.high:,.2f}"
        return f"{self.value:,.2f} {currency} ({self.low:,.2f} to {most})"


def staying(history: History, job: JobDescription) -> Cost | None:
    """What the job will have cost as it is; None without a budget, prices, or a known end."""
    spending = history.spending
    if spending is None or job.budget is None:
        return None
    return _cost(spending, hourly_cost(spending, {}), spending.prediction)


def becoming(
    roles: Mapping[Role, RolePlan],
    prediction: Prediction | None,
    history: History,
    job: JobDescription,
) -> Cost | None:
    """The same once these roles are as a plan says, with the speed that it predicts.

    The change itself is in it: pods are paid for while the training does not go on.
    """
    spending = history.spending
    if spending is None or job.budget is None:
        return None
    hour = hourly_cost(spending, roles)
    return _cost(spending, hour, prediction, hour * CHANGE_SECONDS / HOUR)


def over(history: History, job: JobDescription) -> bool:
    """Whether the job has cost its budget, or is expected to cost more as it is."""
    cost = staying(history, job)
    return spent(history, job) or (cost is not None and cost.value > (job.budget or 0.0))


def spent(history: History, job: JobDescription) -> bool:
    """Whether the job has cost its budget."""
    return (
        history.spending is not None
        and job.budget is not None
        and history.spending.spent >= job.budget
    )


def tight(history: History, job: JobDescription) -> bool:
    """Whether the job as it is leaves less than the margin of its budget."""
    cost = staying(history, job)
    return cost is not None and cost.value > _with_margin(history, job)


def fits(
    roles: Mapping[Role, RolePlan],
    prediction: Prediction | None,
    history: History,
    job: JobDescription,
) -> bool:
    """Whether a plan leaves the margin of the budget; where its cost cannot be told, it does."""
    cost = becoming(roles, prediction, history, job)
    return cost is None or cost.value <= _with_margin(history, job)


def _with_margin(history: History, job: JobDescription) -> float:
    assert history.spending is not None
    assert job.budget is not None
    return job.budget - MARGIN * max(0.0, job.budget - history.spending.spent)


def bears(
    roles: Mapping[Role, RolePlan],
    prediction: Prediction | None,
    history: History,
    job: JobDescription,
) -> bool:
    """Whether the budget bears a plan, or it costs no more than to stay, the change apart."""
    return _unborne(roles, prediction, history, job) is None


def refusal(plan: Plan, history: History, job: JobDescription) -> str:
    """Why the budget does not bear a plan; empty where it does."""
    cost = _unborne(plan.roles, plan.prediction, history, job)
    if cost is None:
        return ""
    assert history.spending is not None
    currency = history.spending.currency
    return f"the job would cost {cost.in_words(currency)}, its budget is {job.budget:g} {currency}"


def _unborne(
    roles: Mapping[Role, RolePlan],
    prediction: Prediction | None,
    history: History,
    job: JobDescription,
) -> Cost | None:
    """What a plan would cost that the budget does not bear; None where it does."""
    cost = becoming(roles, prediction, history, job)
    if cost is None or job.budget is None or cost.value <= job.budget:
        return None
    now = becoming({}, history.spending.prediction, history, job) if history.spending else None
    return None if now is not None and cost.value <= now.value else cost


def warning(history: History, job: JobDescription) -> str:
    """What the owner of a job is told whose budget is not kept; empty where it is, or absent."""
    if job.budget is None:
        return ""
    if history.spending is None:
        return (
            f"spec.budget = {job.budget:g} changes nothing: the Brain has no prices; set `prices` "
            "in its configuration"
        )
    if not over(history, job):
        return ""
    spending, cost = history.spending, staying(history, job)
    currency = spending.currency
    if spending.spent >= job.budget:
        said = f"the job has cost {spending.spent:,.2f} {currency}, all of its budget"
    else:
        said = "the job is expected to cost more than its budget"
    said += f" of {job.budget:g} {currency}"
    if cost is not None:
        said += f": {cost.in_words(currency)} at its end"
    return f"{said}; it trains on with fewer resources, as far as there are fewer"


def hourly_cost(spending: Spending, roles: Mapping[Role, RolePlan]) -> float:
    """What the job's pods cost in an hour, once these roles are as a plan says.

    A role keeps the accelerators of each of its pods, and its size where the plan says none.
    """
    milli_cpus = memories = accelerators = 0.0
    for role in spending.pods.keys() | roles.keys():
        now, planned = spending.pods.get(role), roles.get(role, RolePlan())
        count = planned.replicas
        if count is None:
            count = 0 if now is None else now.count
        own = {rank: one for rank, one in planned.ranks.items() if rank < count}
        milli_cpu = float(planned.milli_cpu or (now.milli_cpu if now else 0))
        memory = float(planned.memory_bytes or (now.memory_bytes if now else 0))
        sizes = [own.get(rank) for rank in range(count)]
        milli_cpus += sum((one.milli_cpu if one else None) or milli_cpu for one in sizes)
        memories += sum((one.memory_bytes if one else None) or memory for one in sizes)
        accelerators += (now.accelerators if now else 0.0) * count
    return hourly(spending, milli_cpus, memories, accelerators)


def _cost(
    spending: Spending, hour: float, speed: Prediction | None, more: float = 0.0
) -> Cost | None:
    if spending.steps_left is None or speed is None or speed.steps_per_second <= 0:
        return None
    before = spending.spent + more
    rest = spending.steps_left * hour / HOUR
    slowest = speed.steps_per_second - speed.error_steps_per_second
    return Cost(
        before + rest / speed.steps_per_second,
        before + rest / (speed.steps_per_second + speed.error_steps_per_second),
        before + rest / slowest if slowest > 0 else None,
    )
