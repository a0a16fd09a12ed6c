"""What the planner decides, as values: the shell carries them out and tells people about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.scheduler.model.pod_view import PodView


class Reason(StrEnum):
    """Why a decision was made: the label of metrics, and the reason of Events and Scales."""

    PLACED = "Placed"
    NO_ROOM = "NoRoom"
    FRAGMENT = "Fragment"
    UNREADABLE = "Unreadable"
    PIN_UNSCHEDULABLE = "PinUnschedulable"
    DATA_STALL = "DataStall"
    TUNED = "Tuned"
    FETCH_STALL = "FetchStall"
    FELL_BACK = "FellBack"
    TAKEN_BACK = "TakenBack"
    ROOM_FOR_ACCELERATORS = "RoomForAccelerators"
    NEARER = "Nearer"


@dataclass(frozen=True, slots=True)
class Pin:
    """Put a gated pod on a node. Its room is reserved already."""

    view: PodView
    node: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod, so that another one takes its place."""

    view: PodView


@dataclass(frozen=True, slots=True)
class SetDeletionCost:
    """Say how late a data worker should go when some have to."""

    view: PodView
    cost: int


@dataclass(frozen=True, slots=True)
class WriteScale:
    """Ask the controller for other data workers of a job."""

    job_uid: str
    namespace: str
    job: str
    roles: Mapping[str, Any]
    reason: Reason
    message: str


Action = Pin | DeletePod | SetDeletionCost | WriteScale


@dataclass(frozen=True, slots=True)
class Record:
    """One decision, for people: what `GET /v1/cluster/allocations`, Events and metrics show.

    `figures` holds the numbers that decided; `view` is the pod that it is about, where it is one.
    """

    key: str
    time_seconds: float
    job_uid: str
    namespace: str
    job: str
    policy: str
    reason: Reason
    message: str
    node: str = ""
    runner_up: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    view: PodView | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions to carry out, what to tell, and when to look again at the latest."""

    actions: tuple[Action, ...] = ()
    records: tuple[Record, ...] = ()
    look_again_seconds: float | None = None
