"""What a pod and its trainer say to one another while machines are checked.

A pod always sends all that it has measured, and gets all of its orders: a message that is lost or
repeated does no harm. A trainer of an older release knows no such call; the pod goes on without.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.job.protocol import PROTOCOL_VERSION, Count, Message, Text

CHECK_PATH: Final = "/v1/nodecheck"
STEP_CHECK_PATH: Final = "/v1/nodecheck/steps"
MOST_MEASURED: Final = 16

Speed = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]


class RoundMeasured(Message):
    """What a pod measured in one round; None: it could not."""

    number: Annotated[int, Field(ge=0, le=MOST_MEASURED)]
    compute: Speed | None = None
    memory: Speed | None = None
    link: Speed | None = None
    failed: bool = False
    """The partner could not be reached, or not all of it came across."""
    complete: bool = True
    """False: its link is still being measured."""


class CheckReport(Message):
    """One pod that is about to begin."""

    version: int = PROTOCOL_VERSION
    rank: Count
    incarnation: Count
    node: Annotated[str, Field(max_length=253)]
    hardware: Annotated[str, Field(max_length=128)] = ""
    address: Text = ""
    """HOST:PORT where a partner measures the link to it; empty: nobody can."""
    measured: Annotated[tuple[RoundMeasured, ...], Field(max_length=MOST_MEASURED)] = ()


class CheckReply(Message):
    """What a pod is to do."""

    over: bool = False
    """Begin."""
    replaced: bool = False
    """Another pod takes this one's place: wait for the end, and begin if it does not come."""
    why: Text = ""
    round: Count | None = None
    """Measure now, unless that was done; None: wait."""
    partner: Text = ""
    """HOST:PORT; empty: nobody."""


class StepMeasured(Message):
    """What one member of a session measured between two steps."""

    version: int = PROTOCOL_VERSION
    rank: Count
    incarnation: Count
    node: Annotated[str, Field(max_length=253)]
    hardware: Annotated[str, Field(max_length=128)] = ""
    group: Count
    """Number of the group of members; with `step` it tells rounds apart."""
    step: Count
    members: Annotated[int, Field(ge=1, le=1 << 16)]
    """Of the round: so many measure."""
    partner: Text = ""
    """The other end of the link, as `replica_name` calls it; empty: there is none."""
    compute: Speed | None = None
    memory: Speed | None = None
    link: Speed | None = None
    failed: bool = False


class StepMeasuredReply(Message):
    """It was taken in."""
