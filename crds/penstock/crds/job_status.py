"""What an ElasticJob was last seen to be: the status that the controller writes.

Two fields of it are the trainer's: what it sees going wrong in the pods, of which the controller
makes conditions, and what the training processes say of their input. Neither writes a field of the
other.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.base.enums import Role, Source
from penstock.base.fields import (
    EXACT_INT_MAX,
    ByRank,
    CamelCase,
    Count,
    DisplayCount,
    Flag,
    Generation,
    Int32,
    Int64,
    Name,
    NullsAreAbsent,
    PerRole,
    Timestamp,
)
from penstock.base.structural import Model, UniqueItems
from penstock.crds.meta import Conditions


def _zero(count: int) -> bool:
    return count == 0


def _false(flag: bool) -> bool:
    return not flag


class ReplicaStatus(Model):
    """How many pods a role has."""

    desired: Count | None = Field(default=None, description="How many there should be.")
    created: Count | None = Field(
        default=None, description="How many pods exist and have not ended."
    )
    ready: Count | None = Field(default=None, description="How many pods are Ready.")
    succeeded: Count | None = Field(default=None, description="How many ranks have succeeded.")
    failed: Count | None = Field(default=None, description="How many ranks have failed for good.")


class RankStatus(Model):
    """What has become of one rank; zero is not written."""

    incarnation: Count = Field(
        default_factory=int,
        exclude_if=_zero,
        description="Incarnation of the rank's newest pod, from 0; recorded before that pod is"
        " created.",
    )
    restarts: Count = Field(
        default_factory=int,
        exclude_if=_zero,
        description="Failures so far, which failurePolicy.maxRestarts bounds.",
    )
    preemptions: Count = Field(
        default_factory=int,
        exclude_if=_zero,
        description="Preemptions, evictions and lost nodes so far, which"
        " failurePolicy.maxPreemptions bounds.",
    )


class AppliedPlan(Model):
    """The Scale in force."""

    name: Name | None = Field(default=None, description="Name of the Scale.")
    source: Source | None = Field(default=None, description="Who wrote it.")
    reason: CamelCase | None = Field(default=None, description="Why, in one CamelCase word.")


MAX_PROBLEMS: Final = 16
"""Most problems in a status."""

MAX_PROBLEM_MESSAGE: Final = 1024
"""Most characters of a problem's message."""


class TrainerProblem(Model):
    """Something that goes wrong in a job's pods, as its trainer sees it."""

    reason: CamelCase = Field(
        description="What goes wrong: one word of the documented catalogue of reasons."
    )
    source: Name = Field(description="Who said so, such as worker-0 or trainer.")
    message: Annotated[str, Field(min_length=1, max_length=MAX_PROBLEM_MESSAGE)] = Field(
        description="The problem in words, and what to do about it."
    )
    since: Timestamp = Field(description="When it began.")
    fatal: Flag = Field(
        default_factory=bool,
        exclude_if=_false,
        description="Whether the job has failed by it.",
    )


MAX_PARTITIONS: Final = 8
"""Most loaders and declared functions in a status."""

MAX_PARTITION_TEXT: Final = 512
"""Most characters of what is said of one."""

_PartitionText = Annotated[str, Field(min_length=1, max_length=MAX_PARTITION_TEXT)]
_Percent = Annotated[Int32, Field(ge=0, le=100)]


class PartitionStatus(Model):
    """What of the step has left the training process, for one loader or one declared function."""

    name: Name = Field(
        description='The loader, such as "the loader of Images", or the declared function.'
    )
    source: Name = Field(description="Who is farthest from On, and says this, such as worker-0.")
    state: Annotated[CamelCase, Field(max_length=32)] = Field(
        description="Recording, Verifying, On or FellBack."
    )
    prefix: _PartitionText | None = Field(
        default=None, description="What moves: the calls before the cut, or the function."
    )
    prefix_percent: _Percent | None = Field(
        default=None, description="Of the step's time, as it was recorded, that the prefix takes."
    )
    crossing_bytes: Annotated[Int64, Field(ge=0, le=EXACT_INT_MAX)] | None = Field(
        default=None, description="That cross the cut in each step, beside the batch."
    )
    moved_percent: _Percent = Field(
        description="Of the steps so far, or calls of the function, that used what was made"
        " elsewhere, in all training processes."
    )
    why: _PartitionText | None = Field(
        default=None, description="Why it stays in the training process, where it does."
    )


class InputStatus(Model):
    """What the training processes say of their input."""

    partition: (
        Annotated[list[PartitionStatus], Field(max_length=MAX_PARTITIONS), UniqueItems("name")]
        | None
    ) = Field(
        default=None,
        description="What of the training step data workers and loader workers do, where anything"
        " is declared or spec.input.partition is Auto.",
    )


_RanksOfRole = Annotated[
    ByRank[Annotated[RankStatus, Field(description="One rank.")]], NullsAreAbsent
]


class ElasticJobStatus(Model):
    """What the job was last seen to be; written by the controller."""

    observed_generation: Generation | None = Field(
        default=None, description="The metadata.generation that this status is about."
    )
    conditions: Conditions | None = Field(
        default=None,
        description="Accepted, Planned, Running, Scaling, Suspended, StorageHealthy,"
        " InputPartitioned, Succeeded and Failed.",
    )
    state: Annotated[CamelCase, Field(max_length=32)] | None = Field(
        default=None,
        description="The conditions in one word: Pending, Planning, Running, Scaling, Suspended,"
        " Succeeded or Failed. For people; no program should read it.",
    )
    workers: DisplayCount | None = Field(
        default=None, description="Ready and desired workers for display, such as 3/4."
    )
    ps: DisplayCount | None = Field(
        default=None, description="Ready and desired parameter servers for display, such as 2/2."
    )
    data_workers: DisplayCount | None = Field(
        default=None, description="Ready and desired data workers for display, such as 1/2."
    )
    accelerated_data_workers: DisplayCount | None = Field(
        default=None,
        description="Ready and desired accelerated data workers for display, such as 1/2.",
    )
    replicas: Annotated[dict[Role, ReplicaStatus], PerRole("Number of {role}.")] | None = Field(
        default=None, description="Number of pods by role."
    )
    ranks: (
        Annotated[
            dict[Role, _RanksOfRole],
            PerRole("The {role}, by rank."),
        ]
        | None
    ) = Field(default=None, description="What each rank has been through, where that is not zero.")
    trainer: RankStatus | None = Field(
        default=None, description="What the Elastic Trainer's own pod has been through."
    )
    problems: (
        Annotated[list[TrainerProblem], Field(max_length=MAX_PROBLEMS), UniqueItems("reason")]
        | None
    ) = Field(
        default=None,
        description="What the trainer sees going wrong, one for each reason; written by the"
        " trainer, and by it alone.",
    )
    input: InputStatus | None = Field(
        default=None,
        description="What the training processes say of their input; written by the trainer, and"
        " by it alone.",
    )
    estimated_completion_time: Timestamp | None = Field(
        default=None,
        description="When the training will have seen all its steps, by the speed of its last"
        " minutes; written by the trainer, and by it alone.",
    )
    plan: AppliedPlan | None = Field(
        default=None,
        description="The newest applied Scale that still decides something. One that names a number"
        " of workers is left out while the spec fixes that number.",
    )
    selector: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None, description="Label selector of the workers' pods, for the scale subresource."
    )
    start_time: Timestamp | None = Field(default=None, description="When the job was accepted.")
    suspended_seconds: Annotated[Int64, Field(ge=0, le=EXACT_INT_MAX)] | None = Field(
        default=None,
        description="Seconds that the job has spent suspended so far, which activeDeadlineSeconds"
        " does not count.",
    )
    completion_time: Timestamp | None = Field(
        default=None, description="When the job succeeded or failed."
    )
