"""The closed sets of words that the controller, the Brain and the trainer share.

Their values are the CamelCase (roles: lowerCamelCase, as they are keys in a spec) strings of the
Kubernetes API; nothing in Penstock spells one of them out a second time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Strategy(StrEnum):
    """How the replicas of a job train together."""

    ALL_REDUCE = "AllReduce"
    PARAMETER_SERVER = "ParameterServer"
    LOCAL = "Local"


class Framework(StrEnum):
    """What a job's programs train with."""

    PYTORCH = "PyTorch"
    TENSORFLOW = "TensorFlow"


class GangScheduler(StrEnum):
    """Whose groups of pods a cluster's gangs are."""

    SCHEDULER_PLUGINS = "SchedulerPlugins"
    VOLCANO = "Volcano"
    KUEUE = "Kueue"


class Optimize(StrEnum):
    """What the Brain may do with a job's resources."""

    AUTO = "Auto"
    INITIAL = "Initial"
    MANUAL = "Manual"


class Objective(StrEnum):
    """What a job's resources are chosen for."""

    FASTEST = "Fastest"
    CHEAPEST = "Cheapest"
    DEADLINE = "Deadline"


class OnHang(StrEnum):
    """What follows when a training process stands still."""

    REPORT = "Report"
    RESTART = "Restart"
    REPLACE = "Replace"


class PartitionPhase(StrEnum):
    """Where the proof is that a part of the training step may run elsewhere."""

    RECORDING = "Recording"
    VERIFYING = "Verifying"
    ON = "On"
    FELL_BACK = "FellBack"


class Role(StrEnum):
    """The roles of a job's replicas, as they are spelt in ``spec.replicaSpecs``."""

    WORKER = "worker"
    PS = "ps"
    DATA_WORKER = "dataWorker"
    ACCELERATED_DATA_WORKER = "acceleratedDataWorker"
    EVALUATOR = "evaluator"

    @property
    def in_names(self) -> str:
        """The role as it appears in object names, host names and label values."""
        return _ROLES_IN_NAMES.get(self, self.value)

    @property
    def in_words(self) -> str:
        """The role in a sentence, plural: "parameter servers"."""
        return _ROLES_IN_WORDS[self]


_ROLES_IN_NAMES: Final = {
    Role.DATA_WORKER: "data-worker",
    Role.ACCELERATED_DATA_WORKER: "accelerated-data-worker",
}
_ROLES_IN_WORDS: Final = {
    Role.WORKER: "training workers",
    Role.PS: "parameter servers",
    Role.DATA_WORKER: "data workers",
    Role.ACCELERATED_DATA_WORKER: "accelerated data workers",
    Role.EVALUATOR: "evaluators",
}

DATA_ROLES: Final = (Role.DATA_WORKER, Role.ACCELERATED_DATA_WORKER)
"""Whose pods make batches: they come and go as the input needs, and never fail a job."""

TRAINER_ROLE: Final = "trainer"
"""The role label of a job's Elastic Trainer: not a replica role, never scaled."""


class Guarantee(StrEnum):
    """What a job is promised about each sample of an epoch."""

    EXACTLY_ONCE = "ExactlyOnce"
    AT_MOST_ONCE = "AtMostOnce"
    UNSHARDED = "Unsharded"


class Offload(StrEnum):
    """Whether the input pipeline may move to data workers."""

    AUTO = "Auto"
    ALWAYS = "Always"
    NEVER = "Never"


class Partition(StrEnum):
    """Which part of a training step's own work data workers do as well."""

    NEVER = "Never"
    DECLARED = "Declared"
    AUTO = "Auto"


class ShareOrder(StrEnum):
    """In which order jobs that share batches get them."""

    FREE = "Free"
    COMMON = "Common"


class ShareJoin(StrEnum):
    """Where a job begins that comes to a group later than others."""

    NOW = "Now"
    EPOCH = "Epoch"


class CacheScope(StrEnum):
    """Who has a cache together."""

    POD = "Pod"
    NODE = "Node"
    NODES = "Nodes"


class CacheForm(StrEnum):
    """What a cache keeps of files that a dataset reads."""

    RAW = "Raw"
    DECODED = "Decoded"


class Compression(StrEnum):
    """Whether batches are sent in fewer bytes than they have."""

    NONE = "None"
    AUTO = "Auto"
    ZSTD = "Zstd"


class Sharding(StrEnum):
    """Whether a sample has a data worker that is to make it."""

    DYNAMIC = "Dynamic"
    STATIC = "Static"


class JobState(StrEnum):
    """The one-word summary of a job's conditions: for display only, never read back."""

    PENDING = "Pending"
    PLANNING = "Planning"
    RUNNING = "Running"
    SCALING = "Scaling"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Source(StrEnum):
    """Who wrote a Scale."""

    BRAIN = "Brain"
    SCHEDULER = "Scheduler"
    CONTROLLER = "Controller"
    USER = "User"


class Policy(StrEnum):
    """Whether a Scale is a target like any other or holds its roles until it is deleted."""

    APPLY = "Apply"
    PIN = "Pin"


class Stage(StrEnum):
    """The stages of planning of one job (DLRover, section 4.2)."""

    CREATE = "Create"
    SAMPLE = "Sample"
    OPTIMIZE = "Optimize"
    ADJUST = "Adjust"


class Trigger(StrEnum):
    """Why an administrator asks for a plan (DLRover, section 4.3)."""

    CREATED = "Created"
    SAMPLED = "Sampled"
    INTERVAL = "Interval"
    OUT_OF_MEMORY = "OutOfMemory"
    STRAGGLER = "Straggler"
    HOT_SERVER = "HotServer"
    IDLE_SERVERS = "IdleServers"
    DATA_STALL = "DataStall"
    PROPOSED = "Proposed"


class EventKind(StrEnum):
    """What happened to one pod of a job."""

    OUT_OF_MEMORY = "OutOfMemory"
    PREEMPTED = "Preempted"
    FAILED = "Failed"


class JobPhase(StrEnum):
    """Where a job is in its life, as far as its trainer has told."""

    ACTIVE = "Active"
    LOST = "Lost"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good; a lost one may come back."""
        return self in {JobPhase.SUCCEEDED, JobPhase.FAILED}
