"""What the demo found: the plans with the speed under each, and the audit of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True)
class Throughput:
    """Speed of the job at one moment."""

    time_seconds: float
    samples_per_second: float
    world_size: int


@dataclass(frozen=True)
class PlanEntry:
    """One applied plan; ``time_seconds`` counts from the moment the job was applied."""

    id: str
    time_seconds: float
    stage: str
    source: str
    reason: str
    message: str
    algorithm: str
    workers: int
    samples_per_second_before: float | None
    samples_per_second_after: float | None


@dataclass(frozen=True)
class JobEnd:
    """The end of the job as its conditions tell it."""

    name: str
    namespace: str
    state: str
    message: str


@dataclass(frozen=True)
class Audit:
    """What the model that survived was trained on, counted by the job while it trained."""

    samples_seen: int
    samples_lost: int
    samples_repeated: int
    accuracy: float


@dataclass(frozen=True)
class FeedStep:
    """One thing that the scheduler asked for, and the speed before and after it."""

    time_seconds: float
    reason: str
    message: str
    data_workers: int
    data_worker_cores: str
    training_cores: str | None
    """None as long as it is what the job asked for."""
    moved: int = 0
    """Data workers that were asked to go elsewhere."""
    batches_per_second_before: float | None = None
    batches_per_second_after: float | None = None


@dataclass(frozen=True)
class FeedReport:
    """What became of the job that waited for its data; images and accuracy as its script said."""

    name: str
    state: str
    steps: tuple[FeedStep, ...]
    seconds: float
    images_per_second_before: int | None
    images_per_second_after: int | None
    waited_before: float | None
    waited_after: float | None
    accuracy: float | None
    gpu_pod_seconds: float | None
    """How long the GPU pod waited; None where it never started."""
    data_workers_lost: int
    """Data workers that left without handing back what they were asked for."""

    def faults(self) -> list[str]:
        """What did not go as promised."""
        faults = []
        if self.state != "Succeeded":
            faults.append(f"{self.name} did not succeed: {self.state}")
        if not any(step.data_workers for step in self.steps):
            faults.append(f"{self.name} got no data worker")
        if self.gpu_pod_seconds is None:
            faults.append("the GPU pod did not start")
        if self.data_workers_lost:
            faults.append(f"{self.data_workers_lost} data workers did not hand back their batches")
        return faults


@dataclass(frozen=True)
class Report:
    """The result of one demo."""

    job: JobEnd
    plans: tuple[PlanEntry, ...]
    audit: Audit | None
    worker_restarts: int
    seconds: float
    gave_up: str = ""
    """Why the job was not watched to its end; empty where it was."""
    images: FeedReport | None = None

    def as_json(self) -> dict[str, object]:
        """The object that ``penstock demo --json`` prints."""
        audit = self.audit
        return {
            "job": asdict(self.job),
            "plans": [asdict(plan) for plan in self.plans],
            "samples_seen": audit.samples_seen if audit else None,
            "samples_lost": audit.samples_lost if audit else None,
            "samples_repeated": audit.samples_repeated if audit else None,
            "accuracy": audit.accuracy if audit else None,
            "worker_restarts": self.worker_restarts,
            "seconds": round(self.seconds, 1),
            "images": asdict(self.images) if self.images else None,
        }

    def faults(self) -> list[str]:
        """What did not go as promised; empty when the demo succeeded."""
        faults = []
        if self.gave_up:
            faults.append(self.gave_up)
        elif self.job.state != "Succeeded":
            faults.append(f"the job ended as {self.job.state}: {self.job.message}")
        if self.audit is None:
            faults.append("the job reported no audit of its samples")
        else:
            if self.audit.samples_lost:
                faults.append(f"{self.audit.samples_lost} samples were lost")
            if self.audit.samples_repeated:
                faults.append(f"{self.audit.samples_repeated} samples were repeated")
        if len(self.plans) < 2:
            faults.append("the plan was never adjusted")
        if self.worker_restarts < 1:
            faults.append("no killed worker was replaced")
        return faults + (self.images.faults() if self.images else [])


def speed_between(
    speeds: Sequence[Throughput], begin_seconds: float, end_seconds: float
) -> float | None:
    """The median speed within a span of time; None where nothing was measured in it."""
    values = [
        speed.samples_per_second
        for speed in speeds
        if begin_seconds <= speed.time_seconds < end_seconds and speed.samples_per_second > 0
    ]
    return median(values) if values else None
