"""Condition types of ElasticJob and Scale, and the reasons that are set on them.

The reasons are one catalogue: a person who looks one up in the documentation finds it, and a
program may match on it. A reason in a status that is not listed here is a fault. The message beside
a reason says what the reason means in the case at hand.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self


class JobCondition(StrEnum):
    """Condition types of an ElasticJob; each is written on the first visit."""

    ACCEPTED = "Accepted"
    PLANNED = "Planned"
    RUNNING = "Running"
    SCALING = "Scaling"
    SUSPENDED = "Suspended"
    STORAGE_HEALTHY = "StorageHealthy"
    INPUT_PARTITIONED = "InputPartitioned"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ScaleCondition(StrEnum):
    """Condition types of a Scale."""

    ADMITTED = "Admitted"
    PREPARED = "Prepared"
    APPLIED = "Applied"
    SUPERSEDED = "Superseded"
    FAILED = "Failed"


class ConditionReason(StrEnum):
    """A reason, the conditions that it is set on, and what it means.

    Attributes:
        conditions: each as TYPE=STATUS, such as ``Accepted=False``.
        meaning: one sentence for the documentation.
    """

    _value_: str
    conditions: tuple[str, ...]
    meaning: str

    def __new__(cls, value: str, conditions: str = "", meaning: str = "") -> Self:
        """Each member is written as (word, conditions separated by spaces, meaning)."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.conditions = tuple(conditions.split())
        member.meaning = meaning
        return member


class JobReason(ConditionReason):
    """Reasons on the conditions of an ElasticJob."""

    ACCEPTED = ("Accepted", "Accepted=True", "The spec can be carried out.")
    GANG_UNAVAILABLE = (
        "GangUnavailable",
        "Accepted=True",
        "The spec can be carried out but for its gang: the message says what to install.",
    )
    SNAPSHOTS_REDUCED = (
        "SnapshotsReduced",
        "Accepted=True",
        "The spec can be carried out, with fewer snapshots in memory: the message says why.",
    )
    INVALID_SPEC = (
        "InvalidSpec",
        "Accepted=False Running=False Scaling=False",
        "The spec breaks a rule; the message names field, value and rule.",
    )
    INVALID_TEMPLATE = (
        "InvalidTemplate",
        "Accepted=False Running=False Scaling=False",
        "A field of a template has the wrong type, or the API server refuses a pod made from it.",
    )
    UNSUPPORTED_STRATEGY = (
        "UnsupportedStrategy",
        "Accepted=False Running=False Scaling=False",
        "No runtime for this strategy is there.",
    )
    OVER_QUOTA = (
        "OverQuota",
        "Accepted=False Running=False Scaling=False",
        "What the spec fixes exceeds its own resourceLimits.",
    )
    CONTROLLER_FAULT = (
        "ControllerFault",
        "Accepted=Unknown",
        "The controller failed at this job in a way that nobody foresaw; it tries again.",
    )
    NAME_TAKEN = (
        "NameTaken",
        "Accepted=False",
        "An object of somebody else's has a name that the job needs.",
    )
    WAITING_FOR_PLAN = (
        "WaitingForPlan",
        "Planned=Unknown Running=False",
        "The Brain's first plan has not come yet.",
    )
    PLAN_ADMITTED = ("PlanAdmitted", "Planned=True", "A Scale was admitted.")
    NO_PLAN_WANTED = (
        "NoPlanWanted",
        "Planned=True",
        "optimize is Manual: the job is what its spec says.",
    )
    BRAIN_UNAVAILABLE = (
        "BrainUnavailable",
        "Planned=False",
        "No plan came in time: the job starts with what its spec says.",
    )
    ENOUGH_WORKERS = ("EnoughWorkers", "Running=True", "At least minReplicas workers are ready.")
    INPUT_RUNS_LOCALLY = (
        "InputRunsLocally",
        "Running=True",
        "The data workers kept failing: the training processes read for themselves.",
    )
    TRAINING_STANDS_STILL = (
        "TrainingStandsStill",
        "Running=True",
        "A process takes no more steps; the message says which, and where it is.",
    )
    BUDGET_NOT_KEPT = (
        "BudgetNotKept",
        "Running=True",
        "The job trains on, over its budget or soon so, or without prices; the message says which.",
    )
    HUNG_PROCESS_ENDED = (
        "HungProcessEnded",
        "Running=True",
        "A process that stood still was ended in the last ten minutes; the message says why.",
    )
    WAITING_FOR_WORKERS = (
        "WaitingForWorkers",
        "Running=False",
        "Fewer than minReplicas workers are ready.",
    )
    SETTLED = ("Settled", "Scaling=False", "Every pod is as its target says.")
    CHANGING = ("Changing", "Scaling=True", "Pods are being created, replaced or removed.")
    UNSCHEDULABLE = ("Unschedulable", "Scaling=False", "Fewer than minReplicas pods find a node.")
    PARTIALLY_SCHEDULED = (
        "PartiallyScheduled",
        "Scaling=False",
        "Some pods find no node; the job trains with what there is.",
    )
    IMAGE_UNAVAILABLE = (
        "ImageUnavailable",
        "Scaling=False Failed=True",
        "An image cannot be pulled; after ten minutes the job fails.",
    )
    INVALID_CONTAINER = (
        "InvalidContainer",
        "Scaling=False Failed=True",
        "A container cannot be configured; after ten minutes the job fails.",
    )
    POD_REFUSED = ("PodRefused", "Scaling=False", "A quota or an admission policy forbids a pod.")
    SUSPENDED = (
        "Suspended",
        "Suspended=True Running=False Scaling=False",
        "The job is suspended and its pods are gone.",
    )
    DRAINING = (
        "Draining",
        "Suspended=False",
        "The job is being suspended: some pods are still there.",
    )
    NOT_SUSPENDED = ("NotSuspended", "Suspended=False", "The job is not suspended.")
    NOTHING_UNWRITTEN = (
        "NothingUnwritten",
        "StorageHealthy=True",
        "The trainer knows of nothing that cannot be written.",
    )
    CHECKPOINTS_NOT_WRITTEN = (
        "CheckpointsNotWritten",
        "StorageHealthy=False",
        "The model cannot be saved; the job trains on, and loses what it does if all workers die.",
    )
    JOURNAL_NOT_WRITTEN = (
        "JournalNotWritten",
        "StorageHealthy=False",
        "The trainer cannot write its journal; the job trains on.",
    )
    STEP_LOG_NOT_WRITTEN = (
        "StepLogNotWritten",
        "StorageHealthy=False",
        "A worker cannot write its log of steps; the job trains on.",
    )
    STAGES_MOVED = (
        "StagesMoved",
        "InputPartitioned=True",
        "Parts of the training step run where batches are made; the message says which.",
    )
    STAGES_NOT_PROVEN = (
        "StagesNotProven",
        "InputPartitioned=Unknown",
        "What could move is still being recorded, or compared with the program.",
    )
    STAGES_FELL_BACK = (
        "StagesFellBack",
        "InputPartitioned=False",
        "Nothing moves: the program runs as written; the message says why.",
    )
    NOTHING_DECLARED = (
        "NothingDeclared",
        "InputPartitioned=False",
        "input.partition is Declared, and the program has declared nothing.",
    )
    PARTITION_OFF = ("PartitionOff", "InputPartitioned=False", "input.partition is Never.")
    NOT_FINISHED = ("NotFinished", "Succeeded=False Failed=False", "The job has not ended.")
    ALL_RANKS_SUCCEEDED = (
        "AllRanksSucceeded",
        "Succeeded=True",
        "Every rank of the workers has succeeded.",
    )
    CHIEF_SUCCEEDED = (
        "ChiefSucceeded",
        "Succeeded=True",
        "The chief of a TensorFlow job with parameter servers has succeeded.",
    )
    DATA_EXHAUSTED = (
        "DataExhausted",
        "Succeeded=True",
        "The trainer has handed out all data and had it acknowledged.",
    )
    MAX_RESTARTS_EXCEEDED = (
        "MaxRestartsExceeded",
        "Failed=True",
        "A rank failed more often than failurePolicy allows.",
    )
    MAX_PREEMPTIONS_EXCEEDED = (
        "MaxPreemptionsExceeded",
        "Failed=True",
        "A rank was preempted more often than failurePolicy allows.",
    )
    OUT_OF_MEMORY = (
        "OutOfMemory",
        "Failed=True",
        "A rank ran out of memory and the limits allow no more.",
    )
    DEADLINE_EXCEEDED = ("DeadlineExceeded", "Failed=True", "activeDeadlineSeconds have passed.")
    WORKERS_FAILED = (
        "WorkersFailed",
        "Failed=True",
        "The trainer finished, but no worker succeeded.",
    )
    SEPARATE_COPIES = (
        "SeparateCopies",
        "Failed=True",
        "The workers each train a copy of their own: none of them knows of the others.",
    )
    DUPLICATE_RANK = (
        "DuplicateRank",
        "Failed=True",
        "Two processes say that they are the same rank.",
    )
    FINISHED = ("Finished", "Running=False Scaling=False", "The job has ended.")

    @property
    def fails_the_job(self) -> bool:
        """Whether a job for which this is given as the reason has failed."""
        return f"{JobCondition.FAILED}=True" in self.conditions


class ScaleReason(ConditionReason):
    """Reasons on the conditions of a Scale."""

    ADMITTED = ("Admitted", "Admitted=True", "The Scale counts.")
    OUT_OF_RANGE = (
        "OutOfRange",
        "Admitted=True",
        "A count lies outside the role's bounds; the message says to what it is cut.",
    )
    DRY_RUN = (
        "DryRun",
        "Admitted=True Applied=False",
        "Nothing is changed; status.preview says what would be.",
    )
    JOB_NOT_FOUND = (
        "JobNotFound",
        "Admitted=False Applied=False Failed=True",
        "There is no such job, or it has another uid.",
    )
    JOB_FINISHED = ("JobFinished", "Admitted=False Applied=False Failed=True", "The job has ended.")
    STALE_JOB = (
        "StaleJob",
        "Admitted=False Applied=False Failed=True",
        "The job's generation is no longer jobGeneration.",
    )
    OVER_QUOTA = (
        "OverQuota",
        "Admitted=False Applied=False Failed=True",
        "The targets exceed the job's resourceLimits.",
    )
    INVALID = (
        "Invalid",
        "Admitted=False Applied=False Failed=True",
        "The targets break a rule; the message names field, value and rule.",
    )
    NOT_REQUIRED = ("NotRequired", "Prepared=True", "The change needs no consent of the training.")
    AWAITING_TRAINER = (
        "AwaitingTrainer",
        "Prepared=Unknown Applied=False",
        "The trainer is asked to get the training ready.",
    )
    SERVERS_READY = (
        "ServersReady",
        "Prepared=True",
        "Parameter servers that are to go own nothing any more; others may come at once.",
    )
    SERVERS_TOO_SMALL = (
        "ServersTooSmall",
        "Prepared=False",
        "The model does not fit the parameter servers that would be left.",
    )
    NOT_PREPARED = (
        "NotPrepared",
        "Applied=False Failed=True",
        "The trainer did not get the training ready in time.",
    )
    APPLIED = ("Applied", "Applied=True", "The job is as the Scale says.")
    CHANGING = ("Changing", "Applied=False", "Pods are being created, replaced or removed.")
    SUSPENDED = (
        "Suspended",
        "Applied=False",
        "The job is suspended; the Scale counts when it resumes.",
    )
    FIXED_BY_SPEC = (
        "FixedBySpec",
        "Applied=False",
        "The job's spec fixes the count; the Scale is kept underneath.",
    )
    PINNED_BY_USER = (
        "PinnedByUser",
        "Applied=False",
        "A pin holds the roles; the Scale is kept underneath.",
    )
    NEWER_SCALE = (
        "NewerScale",
        "Superseded=True Applied=False",
        "A newer Scale took its place in every field.",
    )
    IN_EFFECT = (
        "InEffect",
        "Superseded=False Failed=False",
        "The Scale counts and nothing has taken its place.",
    )


UNWRITTEN: Final = (
    JobReason.CHECKPOINTS_NOT_WRITTEN,
    JobReason.JOURNAL_NOT_WRITTEN,
    JobReason.STEP_LOG_NOT_WRITTEN,
)
"""What a job's storage may fail at, the worst first."""
