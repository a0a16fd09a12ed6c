"""What one decision about one job is made from: the job, its Scales and its pods, as frozen values.

Everything here is a value that the shell copied out of its caches at one moment. Nothing holds a
connection or a clock. Only the few fields that decisions need are kept of a pod, since a controller
keeps one such value for every pod of the cluster's jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from penstock.base.enums import GangScheduler, Policy, Role, Source, Strategy
from penstock.controller.reconcile.model.target_fields import FieldKey
from penstock.crds.conditions import JobReason, ScaleCondition
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.scale_order import Position, position


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a status, as it was last written."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime
    observed_generation: int = 0


@dataclass(frozen=True, slots=True)
class RankRecord:
    """What is recorded of one rank: the incarnation that its newest pod has or had.

    A rank that was never given a pod has none.
    """

    incarnation: int = 0
    restarts: int = 0
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class RoleCounts:
    """The counts of one role as they were last written to the job's status."""

    desired: int = 0
    created: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that goes wrong in the job's pods, as its trainer has written it to the status."""

    reason: JobReason
    message: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class MovedStage:
    """What of the step has left the training processes, as the job's trainer has written it.

    Attributes:
        name: of the loader or declared function.
        state: Recording, Verifying, On or FellBack, or a later release's word.
        prefix: what moves; "": not known yet.
        crossing_bytes: in each step; None: not known.
        moved_percent: of the steps so far.
        why: it stays; "": it does not.
    """

    name: str
    state: str
    prefix: str = ""
    crossing_bytes: int | None = None
    moved_percent: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The part of a job's status that decisions read back; ``raw`` is the whole of it."""

    conditions: Mapping[str, Condition] = field(default_factory=dict)
    counts: Mapping[str, RoleCounts] = field(default_factory=dict)
    ranks: Mapping[str, Mapping[int, RankRecord]] = field(default_factory=dict)
    trainer: RankRecord | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None
    suspended_seconds: int = 0
    problems: tuple[Problem, ...] = ()
    partition: tuple[MovedStage, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)

    def is_true(self, condition: str) -> bool:
        """Whether a condition was last written as True."""
        found = self.conditions.get(condition)
        return found is not None and found.status == "True"


@dataclass(frozen=True, slots=True)
class Job:
    """An ElasticJob. ``spec`` is None, and ``spec_error`` says why, where it cannot be read.

    ``owner_kind``, ``owner_name`` and ``owner_uid`` are those of what controls it, empty where
    nothing does.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    created: datetime
    spec: ElasticJobSpec | None
    spec_error: str = ""
    deleting: bool = False
    managed_by: str | None = None
    owner_kind: str = ""
    owner_name: str = ""
    owner_uid: str = ""
    status: JobStatus = field(default_factory=JobStatus)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name: what a queue is keyed by."""
        return self.namespace, self.name

    @property
    def share_group(self) -> str:
        """The group that the spec names to share batches with; empty: none."""
        share = self.spec.input.share if self.spec is not None else None
        return share.group if share is not None else ""


@dataclass(frozen=True, slots=True)
class Scale:
    """A Scale with its targets flattened into fields, and what its status says so far."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    created: datetime
    job_name: str
    job_uid: str
    source: Source
    policy: Policy
    fields: Mapping[FieldKey, Any]
    reason: str = ""
    job_generation: int | None = None
    dry_run: bool = False
    ttl_seconds: int = 3600
    deleting: bool = False
    error: str = ""
    owners: tuple[Mapping[str, Any], ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    raw_status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def owned(self) -> bool:
        """Whether the Scale is deleted with its job, being owner-referenced to it."""
        return any(owner.get("uid") == self.job_uid for owner in self.owners)

    @property
    def number(self) -> int | None:
        """The place among the job's Scales that it was given when it was decided."""
        return self.raw_status.get("number")

    @property
    def order(self) -> Position:
        """What the job's Scales are sorted by."""
        return position(
            self.number,
            decided=self.is_decided,
            version=self.resource_version,
            created=self.created.isoformat(),
            name=self.name,
        )

    @property
    def is_decided(self) -> bool:
        """Whether admission has been decided."""
        return self.status_of(ScaleCondition.ADMITTED) in {"True", "False"}

    def status_of(self, condition: str) -> str | None:
        """True, False or Unknown as last written; None where it was never written."""
        found = self.conditions.get(condition)
        return None if found is None else found.status

    def is_true(self, condition: str) -> bool:
        """Whether a condition was last written as True."""
        return self.status_of(condition) == "True"

    def names_role(self, role: Role) -> bool:
        """Whether the Scale says anything about a role."""
        return any(key.role == role for key in self.fields)


class ContainerKind(StrEnum):
    """What a container is for its pod."""

    MAIN = "Main"  # the one that trains (`penstock.crds.main_container`)
    BESIDE = "Beside"  # another ordinary container
    INIT = "Init"  # runs to its end before the ordinary ones begin
    SIDECAR = "Sidecar"  # an init container that is restarted: it neither ends nor fails a pod


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One container of a pod, init and sidecar containers included.

    ``exit_code`` is None until it has terminated; ``waiting`` is its reason for waiting;
    ``restarts`` counts how often its pod has started it again.
    """

    name: str
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None
    waiting: str = ""
    kind: ContainerKind = ContainerKind.MAIN
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a job. ``role`` is spelt as in the spec, or is ``trainer``."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    job_uid: str
    role: str
    rank: int
    incarnation: int
    created: datetime
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    node: str = ""
    deleting: bool = False
    ready: bool = False
    ready_since: datetime | None = None
    started: datetime | None = None
    unschedulable_since: datetime | None = None
    unschedulable_message: str = ""
    disrupted: bool = False
    gated: bool = False
    deletion_cost: int = 0
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    resize_infeasible: bool = False
    containers: tuple[ContainerState, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether no container of the pod will run again."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def main(self) -> ContainerState | None:
        """The main container, once the pod has it."""
        return next((one for one in self.containers if one.kind is ContainerKind.MAIN), None)

    @property
    def done(self) -> bool:
        """Whether the main container will not run again, whatever else of the pod still runs."""
        return self.ended or (self.main is not None and self.main.exit_code is not None)

    @property
    def live(self) -> bool:
        """Whether the pod runs or will run, and nobody has asked it to go."""
        return not self.ended and not self.deleting

    @property
    def label(self) -> str:
        """ROLE-RANK for people."""
        return f"{role_in_names(self.role)}-{self.rank}"


def role_in_names(role: str) -> str:
    """A role as names and labels spell it: lower case, hyphens."""
    return Role(role).in_names if role in _ROLES else role


_ROLES: Final = frozenset(role.value for role in Role)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the person who runs the controller chose."""

    trainer_image: str
    brain_url: str | None = None
    brain_authority: str | None = None
    """Certificates in PEM that trainers trust there; None: those of their images."""
    supported_strategies: frozenset[Strategy] = frozenset(Strategy)
    manager: str = "penstock.dev/controller"
    in_place_resize: bool = True
    cache_socket: str | None = None
    """Where the file cache of each node listens, as a path on the node; None: there is none."""
    gang_scheduler: GangScheduler | None = None
    """Whose groups the gangs of jobs are; None: nobody's, and each pod starts by itself."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server's answer to an attempt to create something: final until something changes."""

    code: int
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class Observed:
    """All that one call of `reconcile` may know.

    Attributes:
        reserved: incarnations that this process has recorded and not yet tried to create, as
            (role, rank, incarnation). After a restart it is empty, and a recorded incarnation
            without a pod counts as spent: it may have been created and deleted unseen.
        refusals: what the API server refused at the last attempt, by the name of the object.
        logs: last lines of the log of a failed pod, by the pod's uid.
        unresizable: uids of pods that the API server would not resize in place.
        objects_seen_at: when this process last made sure of the job's Secret, ServiceAccount,
            RoleBinding and Service.
        objects_missing: whether one of them has been found to be gone since.
        known_templates: the templates by role that the API server is known to take pods of.
        cache_refused: whether the API server takes the job's pods without the socket of the
            node's cache alone.
        gang_refusal: why the group of the job's gang could not be made; None: it was, or nobody
            has tried yet.
        planner_alive: whether the planner that pins data workers renews its Lease.
        status_written_at: when this process last wrote the job's status.
    """

    job: Job
    scales: tuple[Scale, ...] = ()
    pods: tuple[Pod, ...] = ()
    reserved: frozenset[tuple[str, int, int]] = frozenset()
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    unresizable: frozenset[str] = frozenset()
    objects_seen_at: datetime | None = None
    objects_missing: bool = False
    known_templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cache_refused: bool = False
    gang_refusal: Refusal | None = None
    planner_alive: bool = False
    status_written_at: datetime | None = None
