"""What jobs cost, as the Brain tells it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.wire.base import Name, Seconds, WireModel

Sum = Annotated[float, Field(ge=0)]


class CostsBy(StrEnum):
    """What one line is about."""

    JOB = "job"
    USER = "user"
    NAMESPACE = "namespace"


class CostLine(WireModel):
    """What was requested for how long, and how much of that was idle: requested and not used."""

    namespace: Name = ""
    """Empty in a line about a user, and in the sum."""
    user: Name = ""
    job: Name = ""
    uid: str = ""
    pod_seconds: Sum
    core_seconds: Sum
    idle_core_seconds: Sum
    gib_seconds: Sum
    """Of memory."""
    idle_gib_seconds: Sum
    accelerator_seconds: Sum
    """Of those that the pods' agents see."""
    idle_accelerator_seconds: Sum
    cost: Sum | None = None
    """In the currency of the prices; absent where the Brain has none."""
    idle_cost: Sum | None = None
    """What of the cost was idle."""


class CostReport(WireModel):
    """The bill of a time range."""

    start: Seconds
    end: Seconds
    currency: str | None = None
    """Absent where the Brain has no prices."""
    lines: list[CostLine]
    """The dearest first; at most as many as were asked for."""
    left_out: int = 0
    """Lines beyond that. They are in the total."""
    total: CostLine
