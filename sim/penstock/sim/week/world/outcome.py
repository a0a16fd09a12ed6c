"""What became of one job in one run of a week."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.sim.week.world.jobs import JobClass, WeekJob
from penstock.sim.week.world.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """`pods` and `cores` are what its user asked for; `ended` is when it was done or had failed,
    None: neither within the time simulated.
    """

    index: int
    kind: JobClass
    pods: int
    cores: float
    arrival: float
    started: float | None
    ended: float | None
    succeeded: bool
    why: str
    steps: float
    made_steps: float
    lost_steps: float
    used_core_seconds: float
    used_byte_seconds: float
    plans: int = 0

    @classmethod
    def of(
        cls,
        job: WeekJob,
        training: Training,
        *,
        started: float | None,
        ended: float | None,
        why: str,
        plans: int = 0,
    ) -> JobOutcome:
        """Of a job that has trained so far; ``why`` it failed, empty: it did not."""
        return cls(
            index=job.index,
            kind=job.kind,
            pods=job.pods,
            cores=job.asked.cores,
            arrival=job.arrival,
            started=started,
            ended=ended,
            succeeded=ended is not None and not why,
            why=why,
            steps=training.steps,
            made_steps=training.made_steps,
            lost_steps=training.lost_steps,
            used_core_seconds=training.used_core_seconds,
            used_byte_seconds=training.used_byte_seconds,
            plans=plans,
        )

    @property
    def jct(self) -> float | None:
        """From its submission until it was done, in seconds; None where it never was."""
        return self.ended - self.arrival if self.succeeded and self.ended is not None else None


@dataclass(slots=True)
class Counts:
    """How often the parts under test were asked."""

    reconcile: int = 0
    administrator: int = 0
    brain: int = 0
    brain_reused: int = 0
    algorithms: dict[str, int] = field(default_factory=dict)
    plans: dict[str, int] = field(default_factory=dict)
    refused: int = 0
