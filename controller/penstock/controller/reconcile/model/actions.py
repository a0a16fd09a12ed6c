"""What the controller may do: the closed set of values that `reconcile` answers with.

Actions are carried out in order; the first one that fails ends the pass, and the key is looked at
again after a pause. Creations and deletions of pods that stand next to one another may be carried
out at the same time. That order is what makes a crash between any two of them harmless: a status
that reserves an incarnation comes before the pod of that incarnation, and one that gives up an
incarnation comes before the deletion of its pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.crds.events import EventReason


@dataclass(frozen=True, slots=True)
class EnsureObject:
    """Create one of the job's own objects unless it is there; one of another owner is an error.

    ``manifest`` of the Secret has no token: whoever carries the action out has it made, and that of
    the job's ``share_group``, if it has one. One that is ``needed_by_others`` is there before any
    of those that follow it goes out.
    """

    resource: str
    manifest: Mapping[str, Any]
    needs_token: bool = False
    share_group: str = ""
    needed_by_others: bool = False


@dataclass(frozen=True, slots=True)
class EnsureShared:
    """Create a share group's object, or add the job to the owners of the one that is there.

    One of that name that is not the group's stays as it is: that is no error of the job's, which
    then shares nothing.
    """

    resource: str
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EnsurePodGroup:
    """Create the group of a job's gang unless it is there.

    A cluster that knows no such thing, or lets the controller make none, holds nothing up.
    """

    resource: str
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod of one incarnation of a rank, which the job's status has reserved."""

    role: str
    rank: int
    incarnation: int
    manifest: Mapping[str, Any]

    @property
    def reservation(self) -> tuple[str, int, int]:
        """What this action uses up."""
        return self.role, self.rank, self.incarnation


@dataclass(frozen=True, slots=True)
class CheckTemplate:
    """Ask the API server whether it would take a pod of a role's template, without making one."""

    role: str
    template: Mapping[str, Any]
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Ask a pod to drain and go: SIGTERM, then its own grace period."""

    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Change cpu and memory of a pod's main container in place."""

    name: str
    uid: str
    container: str
    cpu_milli: int | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class LiftGate:
    """Let a data worker be scheduled although no planner has placed it."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreateScale:
    """Write a Scale of the controller's own; one of that name is the same Scale."""

    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AdoptScale:
    """Make a Scale's life end with its job's: ``owners`` are all its owner references."""

    name: str
    uid: str
    owners: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class PatchJobStatus:
    """Merge a patch into the job's status, on condition of its resourceVersion.

    ``reserves`` are the incarnations that the new status allows to be created. With ``final``
    nothing follows from the new status: the job is not looked at again because of it.
    """

    resource_version: str
    patch: Mapping[str, Any]
    reserves: frozenset[tuple[str, int, int]] = frozenset()
    final: bool = False


@dataclass(frozen=True, slots=True)
class PatchScaleStatus:
    """Merge a patch into a Scale's status, on condition of its resourceVersion."""

    name: str
    uid: str
    resource_version: str
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteScale:
    """Delete a Scale that no longer counts and whose TTL is over."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a finished job whose TTL is over, and with it all that it owns."""

    uid: str


@dataclass(frozen=True, slots=True)
class FetchLog:
    """Read the last lines of a failed container's log, for the message of a failure."""

    pod: str
    uid: str
    container: str


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Record an Event on the job."""

    reason: EventReason
    message: str


@dataclass(frozen=True, slots=True)
class RequeueAt:
    """Look at the job again at this time, whether or not anything happens before."""

    when: datetime


Action = (
    EnsureObject
    | EnsureShared
    | EnsurePodGroup
    | CheckTemplate
    | CreatePod
    | DeletePod
    | ResizePod
    | LiftGate
    | CreateScale
    | AdoptScale
    | PatchJobStatus
    | PatchScaleStatus
    | DeleteScale
    | DeleteJob
    | FetchLog
    | RecordEvent
    | RequeueAt
)


@dataclass(slots=True)
class Alarm:
    """The earliest of the times at which a job must be looked at again."""

    when: datetime | None = field(default=None)

    def at(self, moment: datetime | None) -> None:
        """Add one such time."""
        if moment is not None and (self.when is None or moment < self.when):
            self.when = moment
