"""What is known of machines: measured by the checks of jobs, and overruled by people."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from penstock.wire.base import NO_NUL, Counter, Name, Seconds, Text, WireModel

MAX_MEASURED: Final = 512
LONGEST_AVOIDANCE_SECONDS: Final = 90 * 86_400.0

Speed = Annotated[float, Field(ge=0, le=1e18)]
Hardware = Annotated[str, Field(max_length=128, pattern=NO_NUL)]


class NodeVerdict(StrEnum):
    """What a check says of a node."""

    GOOD = "Good"
    SLOW = "Slow"
    FAILING = "Failing"
    """Its pairs did not get their bytes across."""


class MeasuredNode(WireModel):
    """What one job's check found of one node."""

    node: Annotated[Name, Field(min_length=1)]
    verdict: NodeVerdict
    what: Annotated[str, Field(max_length=16, pattern=NO_NUL)] = ""
    """What is slow: ``compute``, ``memory`` or ``link``."""
    ratio: Annotated[float, Field(ge=0, le=1e9)] = 1.0
    """How many times slower than usual in that."""
    hardware: Hardware = ""
    """Nodes are compared with those of the same."""
    compute: Speed | None = None
    """Floating-point operations per second."""
    memory: Speed | None = None
    """Bytes per second, within memory."""
    link: Speed | None = None
    """Bytes per second, to another pod."""


class NodeReport(WireModel):
    """The body of ``POST /v1/jobs/{uid}/nodes``."""

    nodes: Annotated[list[MeasuredNode], Field(max_length=MAX_MEASURED)] = Field(
        default_factory=list
    )


class AvoidedNodes(WireModel):
    """Which nodes new pods should not be put on, the surest first."""

    nodes: list[Name]


class NodeOverrideBody(WireModel):
    """The body of ``PUT /v1/nodes/{node}/override``: a person's word, until it ends."""

    avoid: bool
    """True: no new pods there. False: there, whatever checks have found or will find."""
    seconds: Annotated[float, Field(gt=0, le=LONGEST_AVOIDANCE_SECONDS)]
    """For so long."""
    why: Text = ""


class NodeRecord(WireModel):
    """What is known of one node."""

    node: Name
    avoided: bool
    """Whether new pods are kept away now."""
    until: Seconds | None = None
    """When what is in force now ends: an avoidance, or a person's word."""
    verdict: NodeVerdict | None = None
    """Of the newest check; absent: none has been there."""
    what: Annotated[str, Field(max_length=16)] = ""
    ratio: float = 1.0
    times: Counter = 0
    """Checks in a row that found it bad; each doubles the time for which it is avoided."""
    hardware: Hardware = ""
    compute: Speed | None = None
    memory: Speed | None = None
    link: Speed | None = None
    measured: Seconds | None = None
    """When the newest check was."""
    job_uid: str = ""
    """Whose it was."""
    overridden_by: Name = ""
    """The person whose word is in force; empty: nobody's."""
    why: Text = ""
    """What that person said."""
