"""What goes wrong in a job's pods, as its trainer knows it: the part of the status that is its own.

Whoever notices something reports it, and clears it when it is over: a problem is there for as long
as its cause is, and no longer. `TrainerService` keeps ``status.problems`` of the job the same
(`penstock.trainer.cluster.job_status`), of which the controller makes conditions. Each problem is
logged once when it comes and once when it goes: without a cluster that is all there is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.crds.conditions import JobReason
from penstock.crds.job_status import MAX_PROBLEM_MESSAGE, MAX_PROBLEMS, TrainerProblem

logger = logging.getLogger(__name__)

MAX_KNOWN: Final = 4096
"""More are not kept: a problem of so many workers is told by any of them."""


@dataclass(frozen=True)
class Problem:
    """One thing that goes wrong somewhere; ``since``: seconds of the trainer's clock."""

    source: str
    reason: JobReason
    message: str
    since: float
    fatal: bool = False


class Problems:
    """All that goes wrong now, by where and what. Fatal ones end the job, and stay."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, JobReason], Problem] = {}

    def report(
        self, source: str, reason: JobReason, message: str, now: float, fatal: bool = False
    ) -> None:
        """Something goes wrong; reported again, it is the same problem in newer words.

        Args:
            source: where, such as ``worker-0`` or ``trainer``.
            reason: what, as in the catalogue of conditions.
            message: the same for people, with what they can do about it.
            now: seconds of the trainer's clock.
            fatal: whether the job has failed by it.
        """
        key = (source, reason)
        known = self._known.get(key)
        if known is not None:
            self._known[key] = replace(known, message=message, fatal=known.fatal or fatal)
            return
        if len(self._known) >= MAX_KNOWN and not fatal:
            return
        self._known[key] = Problem(source, reason, message, now, fatal)
        logger.log(
            logging.ERROR if fatal else logging.WARNING, "%s: %s: %s", source, reason, message
        )

    def clear(self, source: str, reason: JobReason) -> None:
        """It is over, if it was there at all."""
        problem = self._known.get((source, reason))
        if problem is not None and not problem.fatal:
            del self._known[source, reason]
            logger.info("%s: %s: over", source, reason)

    @property
    def fatal(self) -> Problem | None:
        """The first by which the job has failed, if it has."""
        return next((problem for problem in self._known.values() if problem.fatal), None)

    def current(self) -> tuple[Problem, ...]:
        """What goes wrong now: what is fatal first, then what came first."""
        return tuple(
            sorted(self._known.values(), key=lambda one: (not one.fatal, one.since, one.source))
        )


def as_status(problems: Iterable[Problem], clock_zero: datetime) -> list[dict[str, Any]]:
    """The value of ``status.problems``: one entry for each reason, with the first to say so.

    Args:
        problems: as `Problems.current` gives them.
        clock_zero: the time at which the trainer's clock was at zero.
    """
    first: dict[JobReason, Problem] = {}
    others: dict[JobReason, int] = {}
    for problem in problems:
        if first.setdefault(problem.reason, problem) is not problem:
            others[problem.reason] = others.get(problem.reason, 0) + 1
    return [
        TrainerProblem(
            reason=problem.reason,
            source=problem.source,
            message=_bounded(problem, others.get(problem.reason, 0)),
            since=clock_zero + timedelta(seconds=problem.since),
            fatal=problem.fatal,
        ).model_dump(by_alias=True, exclude_none=True, mode="json")
        for problem in list(first.values())[:MAX_PROBLEMS]
    ]


def _bounded(problem: Problem, others: int) -> str:
    more = f" (and {others} more)" if others else ""
    text = f"{problem.source}: {problem.message}"
    room = MAX_PROBLEM_MESSAGE - len(more)
    return (text if len(text) <= room else f"{text[: room - 3]}...") + more
