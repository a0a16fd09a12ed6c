"""What a job's resources are chosen for, and the speed that a deadline asks for.

The objective is the user's (`spec.objective`): Fastest, Cheapest, or Deadline with a time. A
deadline says how many steps per second are enough: those that are left, by the time that is left.
Which resources make so many is the planner's to find (`penstock.brain.algorithms.to_objective`);
where none are known that do, or the deadline is past, the other planners make the job as fast as it
can be.

Guarantee: where the work that is left is unknown, a deadline changes nothing, for no speed follows
from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import Objective
from penstock.base.steps_left import steps_left
from penstock.brain.model import budget
from penstock.brain.model.budget import CHANGE_SECONDS
from penstock.brain.planning import History, JobDescription

SPARE_SECONDS: Final = 60.0
"""Of the time that is left, kept for the start and the end of what is changed."""
HEADROOM: Final = 0.1
"""By so much more than a deadline needs a configuration chosen for it is predicted to make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What to plan for.

    Attributes:
        fastest: whatever adds speed.
        cheapest: the least cost of a step.
        within_budget: fewer resources, so that the budget lasts to the end.
        needed: steps per second with which the deadline is kept; None without one.
        after_change: the same where a change stops the training now, and may have to be undone.
    """

    fastest: bool = False
    cheapest: bool = False
    within_budget: bool = False
    needed: float | None = None
    after_change: float = math.inf


def aim(history: History, job: JobDescription) -> Aim:
    """What to plan for now; a budget counts more than the objective."""
    if budget.spent(history, job):
        return Aim(cheapest=True)
    if budget.tight(history, job):
        return Aim(within_budget=True)
    if job.objective is Objective.FASTEST:
        return Aim(fastest=True)
    if job.objective is Objective.CHEAPEST:
        return Aim(cheapest=True)
    if job.objective is not Objective.DEADLINE or job.total_steps is None:
        return Aim()
    needed = needed_speed(history, job)
    if not math.isfinite(needed):
        return Aim(fastest=True)
    if not needed:
        return Aim()  # the work is done: what is left is the last save
    return Aim(needed=needed, after_change=needed_speed(history, job, 2 * CHANGE_SECONDS))


def needed_speed(history: History, job: JobDescription, lost_seconds: float = 0.0) -> float:
    """Steps per second with which the deadline is kept; infinite where it is past.

    ``lost_seconds``: of the time that is left, without training.
    """
    assert job.total_steps is not None, "without the work that is left no speed follows"
    done = history.samples[-1].step if history.samples else 0
    left = steps_left(done, job.total_steps)
    seconds = (job.deadline_seconds or 0.0) - history.now_seconds - SPARE_SECONDS - lost_seconds
    if not left:
        return 0.0
    return left / seconds if seconds > 0 else math.inf
