"""What a trainer is told of its job from outside: by the job's spec, and by how it was started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.base.enums import Guarantee
from penstock.trainer.control.model.rendezvous import Timing
from penstock.trainer.standstill.response import HangPolicy

DEFAULT_SLOTS_PER_STEP: Final = 64
HANG_SECONDS: Final = 1800.0
"""A program that keeps the others from the end of a step for this long is ended by its agent."""


class RefusedError(Exception):
    """A report that cannot be true or does not fit the job; says which field."""


@dataclass(frozen=True)
class JobFacts:
    """What the job's spec says, as far as the coordinator needs it."""

    slots_per_step: int | None = None
    lease_seconds: float = 20.0
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    skip_bad: bool = False
    min_workers: int = 1
    node_unit: int | None = None
    """So many workers come and go together; None: nobody says."""
    suspended: bool = False
    independent: bool = False
    """Its workers are programs of their own: they need not train together."""
    hang_policy: HangPolicy = field(default_factory=HangPolicy)
    rank_failures: Mapping[int, int] = field(default_factory=dict)
    """Of workers by rank, as they count against ``failurePolicy.maxRestarts``."""


@dataclass(frozen=True)
class ControlSettings:
    """How a trainer was started; the same for its whole life."""

    job: str = "JOB"
    """The job's name, for people."""
    timing: Timing = field(default_factory=Timing)
    hang_seconds: float = HANG_SECONDS
    balance_shares: bool = True
    """Whether members of a group get shares of a step by their speed."""
