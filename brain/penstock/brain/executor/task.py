"""What is asked of an executor, what comes of it, and how both travel between two processes.

A frame is its length in eight bytes and then its bytes. Tasks go to the child as pickles: it is
our own process, on a pipe that nobody else holds. Answers come back as JSON and are validated,
since what a plugin answers may be anything.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from pydantic import TypeAdapter, ValidationError

from penstock.brain.configuration import ExecutorSettings
from penstock.brain.history import HistoryRecord
from penstock.brain.planning import JobDescription, Limits, Plan
from penstock.brain.registry import Registered

HEADER: Final = struct.Struct(">Q")
MAX_ANSWER_BYTES: Final = 4 * 1024**2
_PLAN: Final = TypeAdapter(Plan)
_MAX_DETAIL: Final = 1000


class Outcome(StrEnum):
    """What came of asking an algorithm."""

    PLANNED = "Planned"
    NO_PLAN = "NoPlan"
    REFUSED = "Refused"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    CRASHED = "Crashed"


@dataclass(frozen=True, slots=True)
class Task:
    """One call of one algorithm."""

    entry: Registered
    record: HistoryRecord
    job: JobDescription
    limits: Limits


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came of a task; `plan` exactly where the outcome is Planned."""

    outcome: Outcome
    duration_seconds: float
    plan: Plan | None = None
    detail: str = ""


class TaskRunner(Protocol):
    """Runs tasks somewhere; what a Brain needs of an executor."""

    @property
    def size(self) -> int:
        """Processes that exist now."""

    @property
    def busy(self) -> int:
        """Processes that run a task now."""

    async def run(self, task: Task) -> TaskResult:
        """Run one task. Never raises for what the algorithm does."""

    async def configure(self, settings: ExecutorSettings) -> None:
        """Take over another configuration."""

    async def close(self) -> None:
        """Stop."""


def encode_plan(plan: Plan | None) -> bytes:
    """The answer of an algorithm that returned.

    Raises:
        ValueError: It cannot be written.
    """
    content = None if plan is None else _PLAN.dump_python(plan, mode="json")
    return json.dumps({"plan": content}, allow_nan=False).encode()


def encode_failure(detail: str) -> bytes:
    """The answer of an algorithm that did not."""
    return json.dumps({"failed": detail[:_MAX_DETAIL]}).encode()


def decode(answer: bytes, duration_seconds: float) -> TaskResult:
    """What the child has answered; nonsense becomes Refused."""
    try:
        content = json.loads(answer)
    except ValueError:
        return TaskResult(Outcome.CRASHED, duration_seconds, detail="the answer is not JSON")
    if "failed" in content:
        return TaskResult(Outcome.FAILED, duration_seconds, detail=content["failed"])
    if content["plan"] is None:
        return TaskResult(Outcome.NO_PLAN, duration_seconds)
    try:
        plan = _PLAN.validate_python(content["plan"])
    except (ValidationError, ValueError) as error:
        detail = f"not a plan: {error}"[:_MAX_DETAIL]
        return TaskResult(Outcome.REFUSED, duration_seconds, detail=detail)
    return TaskResult(Outcome.PLANNED, duration_seconds, plan=plan)
