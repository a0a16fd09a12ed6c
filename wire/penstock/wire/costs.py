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
    """What was requested for how long, and how much of that was idle (requested and not used) or
    went into repeated work."""

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
    repeated_core_seconds: Sum = 0.0
    """Used for steps that had been trained before a failure; none of it is idle."""
    repeated_gib_seconds: Sum = 0.0
    repeated_accelerator_seconds: Sum = 0.0
    cost: Sum | None = None
    """In the currency of the prices; absent where the Brain has none."""
    idle_cost: Sum | None = None
    """What of the cost was idle."""
    repeated_cost: Sum | None = None
    """What of the cost went into steps that had been trained before."""


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


class NodesPart(StrEnum):
    """Where what the nodes had went."""

    USED = "Used"
    """Pods of jobs used it, for steps that they trained once."""
    REPEATED = "Repeated"
    """Pods of jobs used it, for steps that had been trained before."""
    IDLE = "Idle"
    """Pods of jobs requested it, and did not use it."""
    OTHERS = "Others"
    """Pods of no job held it, or pods of jobs while they sent no sample. Below zero where pods of
    jobs were given more than they request."""
    STRANDED = "Stranded"
    """Nobody held it, nor could have used it: accelerators without cores, cores without
    accelerators."""
    FREE = "Free"
    """Nobody held it."""


class NodesLine(WireModel):
    """One part of what the nodes had; absent cost: without prices."""

    core_seconds: float
    gib_seconds: float
    accelerator_seconds: float
    cost: float | None = None


class NodesReport(WireModel):
    """What the nodes had in a time range, and where it went: the parts add up to the total."""

    start: Seconds
    end: Seconds
    """In whole ten minutes, or the newest minute."""
    covered_seconds: Sum
    """Of this time the scheduler has shown the nodes."""
    node_seconds: Sum
    currency: str | None = None
    parts: dict[NodesPart, NodesLine]
    total: NodesLine
