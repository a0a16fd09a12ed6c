"""Reasons of the Kubernetes Events that Penstock records: one catalogue, with what each one means.

An Event is for a person who looks at ``kubectl describe``; no program reads it back.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class EventReason(StrEnum):
    """Reasons of the Events on an ElasticJob, or on a TrainJob that is run in place.

    Attributes:
        severity: the type of the Event, Normal or Warning.
        meaning: one sentence for the documentation.
    """

    _value_: str
    severity: str
    meaning: str

    def __new__(cls, value: str, severity: str = "", meaning: str = "") -> Self:
        """Each member is written as (word, severity, meaning)."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.severity = severity
        member.meaning = meaning
        return member

    ACCEPTED = ("Accepted", "Normal", "The spec is in order; the job's objects are being made.")
    REFUSED = ("Refused", "Warning", "The spec cannot be carried out; the message says why.")
    PLANNED = ("Planned", "Normal", "A plan is there, or none was wanted.")
    BRAIN_UNAVAILABLE = (
        "BrainUnavailable",
        "Warning",
        "No plan came in time: the job starts with what its spec says.",
    )
    PODS_CREATED = ("PodsCreated", "Normal", "How many pods of which roles were created.")
    PODS_REMOVED = ("PodsRemoved", "Normal", "How many pods of which roles are being drained.")
    PODS_REPLACED = (
        "PodsReplaced",
        "Warning",
        "Which ranks failed or were lost and are replaced, and why.",
    )
    RUNNING = ("Running", "Normal", "Enough workers are ready.")
    TRAINING_STANDS_STILL = (
        "TrainingStandsStill",
        "Warning",
        "A process takes no more steps; the message says which, and where it is.",
    )
    HUNG_PROCESS_ENDED = (
        "HungProcessEnded",
        "Warning",
        "A process that stood still was ended by failurePolicy.onHang; the message says why.",
    )
    UNSCHEDULABLE = ("Unschedulable", "Warning", "Fewer than minReplicas pods find a node.")
    STARTUP_BLOCKED = (
        "StartupBlocked",
        "Warning",
        "An image or the configuration of a container is bad.",
    )
    SCALE_REFUSED = ("ScaleRefused", "Warning", "A Scale does not count; the message says why.")
    SCALE_WRITTEN = ("ScaleWritten", "Warning", "The controller asks for a change of its own.")
    GATES_LIFTED = (
        "GatesLifted",
        "Warning",
        "No planner is alive: data workers are scheduled without it.",
    )
    CACHE_NOT_MOUNTED = (
        "CacheNotMounted",
        "Warning",
        "The namespace forbids the node's file cache: the job runs without; the message says why.",
    )
    SNAPSHOTS_REDUCED = (
        "SnapshotsReduced",
        "Warning",
        "The namespace has no memory left for snapshots: pods run without; the message says why.",
    )
    SUSPENDED = ("Suspended", "Normal", "The job is suspended and its pods are gone.")
    NOT_SHARED = (
        "NotShared",
        "Warning",
        "An object of the share group is somebody else's: the job runs, and shares nothing.",
    )
    BUDGET_NOT_KEPT = (
        "BudgetNotKept",
        "Warning",
        "The job trains on, over its budget or soon so, or without prices; the message says which.",
    )
    STORAGE_FAILING = (
        "StorageFailing",
        "Warning",
        "Checkpoints, journal or step logs cannot be written; the message says which and where.",
    )
    STORAGE_RECOVERED = ("StorageRecovered", "Normal", "All that failed to be written is, again.")
    INPUT_PARTITIONED = (
        "InputPartitioned",
        "Normal",
        "Parts of the training step run where batches are made; the message says which.",
    )
    INPUT_AS_WRITTEN = (
        "InputAsWritten",
        "Normal",
        "Nothing leaves the training step; the message says why.",
    )
    CONVERTED = (
        "Converted",
        "Normal",
        "On a TrainJob: what of it has no place in its ElasticJob, or asks for something.",
    )
    NOT_CONVERTED = (
        "NotConverted",
        "Warning",
        "On a TrainJob: why no ElasticJob can be made of it, or is not made yet.",
    )
    SUCCEEDED = ("Succeeded", "Normal", "The job has succeeded.")
    FAILED = ("Failed", "Warning", "The job has failed; the message says why.")
