"""What a job did over one interval, as its trainer measured it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import EventKind, Role
from penstock.base.fields import Rank
from penstock.wire.base import (
    Bytes,
    Cores,
    Counter,
    Duration,
    Name,
    Rate,
    Seconds,
    Text,
    WireModel,
)

MAX_SAMPLES_PER_BATCH: Final = 256
MAX_RANKS_PER_SAMPLE: Final = 4096
MAX_STAGES: Final = 16


class RankSample(WireModel):
    """One pod over the interval: means, except memory, which is the peak."""

    cpu_cores: Cores
    """CPU used."""
    memory_bytes: Bytes = 0
    """Peak of the memory used."""
    cpu_limit_cores: Annotated[Cores, Field(gt=0)] | None = None
    """CPU granted, where known."""
    memory_limit_bytes: Annotated[Bytes, Field(gt=0)] | None = None
    """Memory granted, where known."""
    steps_per_second: Rate | None = None
    """A worker's own speed."""
    step_seconds: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """Mean time of the worker's steps."""
    wait_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Part of the time spent waiting for input."""
    gpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """GPUs measured, MIG slices counted one by one; absent where none is."""
    gpu_utilization: Annotated[float, Field(ge=0, le=1)] | None = None
    """Mean utilisation of its GPUs, where they tell it."""
    gpu_memory_bytes: Bytes | None = None
    """Memory used on its GPUs, all together."""
    gpu_memory_total_bytes: Bytes | None = None
    """Memory that these GPUs have."""
    gpu_power_watts: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Power drawn by its GPUs, all together."""
    node: Name = ""
    """The node it runs on."""
    incarnation: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Incarnation of the pod."""


GPU_FIELDS: Final = (
    "gpus",
    "gpu_utilization",
    "gpu_memory_bytes",
    "gpu_memory_total_bytes",
    "gpu_power_watts",
)
"""What a `RankSample` says of GPUs: new in this release."""


class StageSample(WireModel):
    """One stage of an input that is made in several: what all of its workers do."""

    made_per_second: Rate
    """Batches that they made."""
    busy_share: Annotated[float, Field(ge=0, le=1)]
    """Share of their time in which they made some, and waited neither for input nor for room."""


class QueueSample(WireModel):
    """The input queue between data workers and training workers, seen by the consumer."""

    enqueued_per_second: Rate
    """Batches that arrived."""
    dequeued_per_second: Rate
    """Batches that the training took."""
    ideal_per_second: Rate | None = None
    """Batches that the training would take if it never waited."""
    received_bytes_per_second: Rate | None = None
    """What data workers sent, where that is known."""
    stages: Annotated[list[StageSample], Field(max_length=MAX_STAGES)] | None = None
    """Stages of the input, in the order in which a batch goes through them; absent: one."""


class ShareSample(WireModel):
    """What a job's share group does, as the data workers that serve the job tell it.

    In tiles, the unit of sharing; of the data workers that are there now, of all members.
    """

    group: Annotated[Name, Field(min_length=1)]
    """The group's name."""
    members: Counter = 0
    """Loaders that share."""
    data_workers: Counter = 0
    """Data workers of all members."""
    own_data_workers: Counter = 0
    """Data workers of this job."""
    cpu_cores: Cores = 0.0
    """CPU that the data workers of all members use."""
    made: Counter = 0
    """Tiles made."""
    taken: Counter = 0
    """Tiles taken, by all members."""
    evicted: Counter = 0
    """Tiles that went before all members had had them."""
    held_bytes: Bytes = 0
    """Bytes of tiles that are held now."""
    lag_tiles: Counter = 0
    """Tiles that this job is behind the member that is furthest."""


class Sample(WireModel):
    """One interval of a job."""

    time: Seconds
    """End of the interval by the trainer's clock; the key by which a repeated sample is known."""
    step: Counter
    """Newest step."""
    epoch: Counter = 0
    steps_per_second: Rate
    samples_per_second: Rate = 0.0
    world_size: Annotated[int, Field(ge=0, le=4096)] = 0
    """Workers in the training."""
    interval_seconds: Duration = 15.0
    roles: dict[Role, Annotated[dict[Rank, RankSample], Field(max_length=MAX_RANKS_PER_SAMPLE)]] = (
        Field(default_factory=dict)
    )
    """Every pod that trained through the whole interval, by role and rank."""
    queue: QueueSample | None = None
    share: ShareSample | None = None
    """What it shares with other jobs; absent where it shares with none."""


class JobEvent(WireModel):
    """Something that happened to one pod."""

    time: Seconds
    kind: EventKind
    role: Role
    rank: Rank
    memory_limit_bytes: Annotated[Bytes, Field(gt=0)] | None = None
    """The limit that it ran into, for OutOfMemory."""
    node: Name = ""


class SampleBatch(WireModel):
    """Samples and events since the last batch: the body of ``POST /v1/jobs/{uid}/samples``."""

    samples: Annotated[list[Sample], Field(max_length=MAX_SAMPLES_PER_BATCH)] = Field(
        default_factory=list
    )
    events: Annotated[list[JobEvent], Field(max_length=MAX_SAMPLES_PER_BATCH)] = Field(
        default_factory=list
    )
    dropped: Counter = 0
    """Samples that the sender had to drop since its last batch."""
    sent: Seconds | None = None
    """The sender's clock as it sent the batch, by which a clock that is off is known."""

    def for_release_before(self) -> SampleBatch:
        """The same for a Brain of the release before, which refuses fields it does not know."""
        unsaid = dict.fromkeys(GPU_FIELDS)
        return self.model_copy(
            update={
                "samples": [
                    sample.model_copy(
                        update={
                            "share": None,
                            "queue": sample.queue.model_copy(update={"stages": None})
                            if sample.queue
                            else None,
                            "roles": {
                                role: {
                                    rank: of.model_copy(update=unsaid) for rank, of in ranks.items()
                                }
                                for role, ranks in sample.roles.items()
                                if role is not Role.ACCELERATED_DATA_WORKER
                            },
                        }
                    )
                    for sample in self.samples
                ]
            }
        )


class SampleReceipt(WireModel):
    """What became of a batch."""

    accepted: Counter
    """Samples stored."""
    repeated: Counter
    """Samples that were there already, by their time."""
    current_plan: int | None = None
    """Id of the plan in force, so that a trainer sees a new one without asking."""
    warning: Text = ""
    """What the job's owner should know, as that it will cost more than its budget."""


class Resolution(StrEnum):
    """How fine the samples are that one reads."""

    RAW = "raw"
    MINUTE = "1m"
    TEN_MINUTES = "10m"


class RoleUse(WireModel):
    """What the pods of one role used over an interval."""

    replicas: Annotated[int, Field(ge=0)]
    """Pods that reported."""
    cpu_cores: Cores
    """Sum over the pods of the mean use."""
    hottest_cpu_cores: Cores
    """Mean use of the busiest pod."""
    peak_memory_bytes: Bytes
    """Largest peak of one pod."""
    wait_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Mean share of the time that they waited for input; absent in roll-ups, or unknown."""
    gpus: Annotated[int, Field(ge=1)] | None = None
    """GPUs measured, of all pods; absent where none is."""
    gpu_utilization: Annotated[float, Field(ge=0, le=1)] | None = None
    """Mean utilisation of these GPUs, where they tell it."""
    gpu_memory_bytes: Bytes | None = None
    """Memory used on them, all together; in roll-ups the peak."""
    gpu_memory_total_bytes: Bytes | None = None
    """Memory that they have."""
    gpu_power_watts: Annotated[float, Field(ge=0)] | None = None
    """Power that they draw, all together."""


class SampleView(WireModel):
    """One stored sample, or one interval of a roll-up."""

    time: Seconds
    """End of a sample's interval, start of a roll-up's."""
    received_seconds: Seconds
    """Server's clock when the sample came in."""
    step: Counter
    epoch: Counter = 0
    steps_per_second: Rate
    samples_per_second: Rate = 0.0
    world_size: Counter = 0
    roles: dict[Role, RoleUse] = Field(default_factory=dict)
    queue: QueueSample | None = None
    """The input queue: of raw samples only, where the job has one."""
    share: ShareSample | None = None
    """What it shares with other jobs: of raw samples only."""
    ranks: dict[Role, dict[Rank, RankSample]] | None = None
    """Single pods: of raw samples only, and only where asked for (``ranks=true``)."""
