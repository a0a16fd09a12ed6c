"""Plans: what a job should become, who or what said so, from what, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, PlainSerializer, field_validator, model_validator

from penstock.base.enums import Policy, Role, Source, Stage, Trigger
from penstock.base.fields import CamelCase, PositiveQuantity, Rank
from penstock.base.targets import RankTarget, Resources, RoleTarget
from penstock.wire.base import Counter, Name, Rate, Seconds, Text, WireModel

PlanId = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""Plans of one job are numbered from 1 in the order in which they were made."""


def _as_in_a_scale(target: RoleTarget) -> dict[str, Any]:
    return target.model_dump(by_alias=True, exclude_none=True, mode="json")


RoleTargets = Annotated[
    dict[Role, RoleTarget],
    # Without a return type the schema stays that of the targets.
    PlainSerializer(lambda roles: {role.value: _as_in_a_scale(of) for role, of in roles.items()}),
]
"""Targets by role, spelt as in a Scale."""


class AlgorithmRef(WireModel):
    """Which algorithm made a plan."""

    name: Name
    version: Name = ""


class Prediction(WireModel):
    """The speed that was expected of a plan."""

    steps_per_second: Rate
    error_steps_per_second: Rate
    """About 9 in 10 are expected to fall within it."""


class Evidence(WireModel):
    """What a plan was made from."""

    samples: Counter = 0
    first_sample_seconds: Seconds | None = None
    last_sample_seconds: Seconds | None = None
    past_jobs: list[str] = Field(default_factory=list)
    """Uids of the finished jobs that it was learnt from."""
    figures: dict[str, float] = Field(default_factory=dict)
    """The figures that decided."""


class DataWorkerDemand(WireModel):
    """How many data workers the job could use, and of which size."""

    replicas: Annotated[int, Field(ge=0, le=4096)]
    milli_cpu: Annotated[int, Field(gt=0)]
    memory_bytes: Annotated[int, Field(gt=0)] | None = None


class Outcome(WireModel):
    """What happened after a plan was made, as far as the samples tell."""

    settled_seconds: Seconds | None = None
    """First sample with as many pods as planned; absent while there is none."""
    steps_per_second: Rate | None = None
    """Median speed from then until the next plan."""


class ShadowPlan(WireModel):
    """What an algorithm in shadow mode would have done instead."""

    algorithm: AlgorithmRef
    roles: RoleTargets = Field(default_factory=dict)
    prediction: Prediction | None = None
    message: Text = ""


class Plan(WireModel):
    """One plan of a job. `roles` is spelt as in a Scale, and can be copied into one."""

    id: PlanId
    job_uid: str
    created_seconds: Seconds
    source: Source
    """Brain, or User for an override."""
    policy: Policy = Policy.APPLY
    stage: Stage | None = None
    """Absent for an override."""
    trigger: Trigger | None = None
    """What made the Brain plan."""
    algorithm: AlgorithmRef | None = None
    reason: CamelCase
    message: Text
    roles: RoleTargets = Field(default_factory=dict)
    """What each role should be; an absent role or field stays as it is."""
    shard_weights: dict[Rank, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    """Workers that should get less than a full share of the data."""
    data_workers: DataWorkerDemand | None = None
    prediction: Prediction | None = None
    evidence: Evidence = Evidence()
    held: bool = False
    """True: made while a person's pin stood against it, and not in force."""
    author: Name = ""
    """Who made the override."""
    scale: Name | None = None
    """The Scale that this service wrote for an override; absent: the trainer writes it."""
    outcome: Outcome | None = None
    shadows: list[ShadowPlan] = Field(default_factory=list)


class Override(WireModel):
    """A person's targets for a job: the body of ``POST /v1/jobs/{uid}/plans``."""

    policy: Policy = Policy.APPLY
    """Apply: until the Brain says otherwise. Pin: until it is deleted."""
    roles: Annotated[RoleTargets, Field(min_length=1)]
    reason: CamelCase = "Override"
    message: Text = ""
    """Why, for the people who read the history."""

    @field_validator("roles", mode="before")
    @classmethod
    def _nothing_unknown(cls, roles: Any) -> Any:
        # The models of the custom resources drop unknown fields, as the API server does; a typing
        # error in an override must not become "no change".
        if isinstance(roles, Mapping):
            for role, target in roles.items():
                _refuse_unknown(target, RoleTarget, f"{role}")
        return roles

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        for role, target in self.roles.items():
            if not target.model_dump(exclude_none=True):
                raise ValueError(f"roles.{role} says nothing: give replicas, resources or ranks")
        return self


class ProposalLimits(WireModel):
    """Limits to plan with instead of the job's own."""

    cpu: PositiveQuantity | None = None
    memory: PositiveQuantity | None = None
    pod_cpu: PositiveQuantity | None = None
    pod_memory: PositiveQuantity | None = None


class ProposalRequest(WireModel):
    """What to plan, changing nothing: the body of ``POST /v1/jobs/{uid}/plans/propose``."""

    algorithm: Name | None = None
    """Only this algorithm; absent: what the Brain would ask now."""
    stage: Stage | None = None
    """As if the job were at this stage."""
    limits: ProposalLimits = ProposalLimits()


class RunOutcome(StrEnum):
    """What came of asking an algorithm."""

    PLANNED = "Planned"
    NO_PLAN = "NoPlan"
    REFUSED = "Refused"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    CRASHED = "Crashed"


class AlgorithmRun(WireModel):
    """One algorithm that was asked."""

    time_seconds: Seconds
    trigger: Trigger
    stage: Stage
    algorithm: AlgorithmRef
    shadow: bool = False
    outcome: RunOutcome
    detail: Text = ""
    """Why a plan was refused, or how the algorithm failed."""
    duration_seconds: Annotated[float, Field(ge=0)]
    plan: PlanId | None = None
    """The plan that it became."""


class Proposal(WireModel):
    """What the Brain would do; nothing was changed."""

    plan: Plan | None = None
    """Absent: nothing should change. Its id is the one it would get."""
    runs: list[AlgorithmRun] = Field(default_factory=list)


def _refuse_unknown(value: Any, model: type[BaseModel], where: str) -> None:
    if not isinstance(value, Mapping):
        return
    known: dict[str, str] = {}
    for name, field in model.model_fields.items():
        known |= {name: name, field.alias or name: name}
    for key, inner in value.items():
        if key not in known:
            names = ", ".join(
                sorted(field.alias or name for name, field in model.model_fields.items())
            )
            raise ValueError(f"roles.{where}.{key} is not known: expected {names}")
        if model is RoleTarget and known[key] == "resources":
            _refuse_unknown(inner, Resources, f"{where}.{key}")
        if model is RoleTarget and known[key] == "ranks" and isinstance(inner, Mapping):
            for rank, target in inner.items():
                _refuse_unknown(target, RankTarget, f"{where}.{key}.{rank}")
