"""A job as its trainer registers it, and as the Brain has it."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from penstock.base.enums import JobPhase, Objective, Optimize, Role, Strategy
from penstock.base.fields import PositiveQuantity, Quantity, Replicas
from penstock.wire.base import NO_NUL, Counter, Name, Rate, Seconds, Text, Uid, WireModel

LimitedResource = Annotated[str, Field(min_length=1, max_length=317, pattern=NO_NUL)]


def _one(count: int) -> bool:
    """What is the rule is left unsaid: a Brain of an earlier release takes it as well."""
    return count == 1


def _absent(value: object) -> bool:
    """As `_one`, of what a release before had no word for."""
    return value is None


MOST_BUDGET: Final = 1e12
"""More is as good as no bound."""


class Signature(WireModel):
    """How similar jobs are found; empty is unknown."""

    model: Name = ""
    """The model that is trained."""
    dataset: Name = ""
    """The data that it learns from."""
    user: Name = ""
    """The person or team that trains."""
    code: Name = ""
    """The version of the program."""

    @property
    def finds_jobs(self) -> bool:
        """Whether it names what jobs are alike by: model, dataset or user."""
        return bool(self.model or self.dataset or self.user)


class RoleDescription(WireModel):
    """What the job's spec says of one role."""

    min_replicas: Replicas = 1
    """Least number that a plan may choose."""
    max_replicas: Replicas | None = None
    """Greatest number that a plan may choose; absent: bounded by the job's limits alone."""
    fixed_replicas: Annotated[Replicas, Field(ge=1)] | None = None
    """The number that the spec fixes; a plan does not change it then."""
    unit: Annotated[Replicas, Field(ge=1, exclude_if=_one)] = 1
    """The number of replicas is a multiple of it."""
    spare_replicas: Replicas = 0
    """Workers beyond the quota, the first to be preempted."""
    cpu: PositiveQuantity | None = None
    """CPU that the template's main container requests."""
    memory: PositiveQuantity | None = None
    """Memory that the template's main container requests."""

    @model_validator(mode="after")
    def _bounds_agree(self) -> Self:
        if self.max_replicas is not None and self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas = {self.min_replicas}: must not be greater than "
                f"max_replicas = {self.max_replicas}"
            )
        return self


class JobRegistration(WireModel):
    """The description of a job: the body of ``PUT /v1/jobs/{uid}``."""

    name: Annotated[Name, Field(min_length=1)]
    namespace: Annotated[Name, Field(min_length=1)]
    strategy: Strategy
    optimize: Optimize = Optimize.AUTO
    signature: Signature = Signature()
    resource_limits: Annotated[dict[LimitedResource, Quantity], Field(max_length=8)] = Field(
        default_factory=dict
    )
    """Most that all pods of the job together may request: cpu, memory, accelerators."""
    roles: Annotated[dict[Role, RoleDescription], Field(min_length=1)]
    """The roles that the job declares."""
    slots_per_step: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Slots of a training step, fixed at creation."""
    global_batch: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Samples of a training step, when known."""
    total_steps: Annotated[int | None, Field(ge=1, lt=2**53, exclude_if=_absent)] = None
    """Steps of the whole training, when known."""
    objective: Annotated[Objective | None, Field(exclude_if=_absent)] = None
    """What the job's resources are chosen for; absent: speed in proportion to what it takes."""
    deadline_seconds: Annotated[Seconds | None, Field(exclude_if=_absent)] = None
    """By when the job is to have ended, with objective Deadline."""
    budget: Annotated[float | None, Field(gt=0, le=MOST_BUDGET, exclude_if=_absent)] = None
    """What the job may cost, in the currency of the Brain's prices."""

    @model_validator(mode="after")
    def _deadline_agrees(self) -> Self:
        """The rules that the job's resource has (`penstock.crds.elasticjob`)."""
        if self.objective is Objective.DEADLINE and self.deadline_seconds is None:
            raise ValueError(
                "deadline_seconds: required with objective = Deadline; give the time by which"
                " the job is to have ended, in seconds since 1970"
            )
        if self.deadline_seconds is not None and self.objective is not Objective.DEADLINE:
            stated = "none" if self.objective is None else self.objective
            raise ValueError(
                f"deadline_seconds = {self.deadline_seconds:g}: needs objective = Deadline, got"
                f" {stated}"
            )
        return self

    def for_release_before(self) -> JobRegistration:
        """The same in words that a Brain of the release before knows."""
        unsaid = dict.fromkeys(("total_steps", "objective", "deadline_seconds", "budget"))
        return self.model_copy(update=unsaid)


class Job(JobRegistration):
    """A job as the Brain has it."""

    uid: Uid
    phase: JobPhase
    """Active, Lost (nothing heard for 15 minutes), Succeeded or Failed."""
    message: Text = ""
    """Why the job ended, or why it has no initial plan."""
    warning: Text = ""
    """What its owner should know, as that it will cost more than its budget."""
    registered_seconds: Seconds
    """When the job was registered first."""
    last_seen_seconds: Seconds
    """When its trainer was last heard of."""
    finished_seconds: Seconds | None = None
    step: Counter = 0
    """Newest step reported."""
    steps_per_second: Rate = 0.0
    """Speed of the newest sample."""
    world_size: Counter = 0
    """Workers of the newest sample."""
    current_plan: Annotated[int, Field(ge=1)] | None = None
    """Id of the plan in force; read it at ``plans/current``."""
    pinned_by: Annotated[int, Field(ge=1)] | None = None
    """Id of the override that pins the job; absent where the Brain is free to plan."""

    @model_validator(mode="after")
    def _deadline_agrees(self) -> Self:
        """A job that was stored before the rule is shown as it is."""
        return self


class JobFinish(WireModel):
    """How a job ended: the body of ``POST /v1/jobs/{uid}/finish``."""

    state: Literal["Succeeded", "Failed"]
    message: Text = ""
