"""What the allocation knows of one job between two intervals, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.base.enums import DATA_ROLES, Role
from penstock.scheduler.model.decisions import Reason
from penstock.scheduler.model.job_view import JobView
from penstock.scheduler.policies.gains import GainEstimate
from penstock.scheduler.stage_tuning import StageTuning
from penstock.scheduler.tuning import Tuning

SETTLING_SECONDS: Final = 60.0
"""How long after a Scale the job's status may still want something else."""


@dataclass(frozen=True, slots=True)
class Running:
    """The data workers that a job has now."""

    live: int = 0
    ready: int = 0
    cores: int = 0
    """Of the largest one."""
    accelerated_ready: int = 0
    """Accelerated data workers that make batches."""
    spare_training_cores: int = 0
    """Whole cores that the nodes of its training workers could give each of these."""
    since_seconds: float = float("-inf")
    """When the newest of the job's training and data workers became ready."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one job from one interval to the next."""

    tuning: Tuning
    stages: StageTuning | None = None
    """Of a job whose input is made in several stages; it then takes the place of `tuning`."""
    gain: GainEstimate = field(default_factory=GainEstimate)
    seen_seconds: float = float("-inf")
    grown_seconds: float = float("-inf")
    asked_seconds: float = float("-inf")
    """When the last Scale was asked for."""
    rests_until: float = float("-inf")
    waiting_since: float | None = None
    starved_intervals: int = 0
    storage_intervals: int = 0
    """In a row, in which it waited for its storage."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being tried with the job."""
        return self.tuning.is_final if self.stages is None else self.stages.is_final

    def drained(self, role: Role, left: int, now: float) -> Memory:
        """The same, after data workers of a role made room and only so many are left."""
        why = "data workers made room for accelerators"
        tuning, stages = self.tuning, self.stages
        if role is Role.DATA_WORKER:
            tuning = replace(tuning, data_workers=left, why=why)
        if stages is not None:
            number = DATA_ROLES.index(role)
            workers = (*stages.workers[:number], left, *stages.workers[number + 1 :])
            stages = StageTuning(workers, why=why)
        return replace(self, tuning=tuning, stages=stages, asked_seconds=now, grown_seconds=now)


@dataclass(frozen=True, slots=True)
class Change:
    """Other data workers for one job, as the roles of a Scale."""

    job: JobView
    roles: Mapping[str, Any]
    reason: Reason
    message: str
    figures: Mapping[str, float] = field(default_factory=dict)
