"""Scale: what some roles of one ElasticJob should be.

A Scale holds targets, never orders for single pods, and is immutable: a job's history of plans is
its list of Scales. The only definition of the resource: `penstock.crds.schema` derives the CRD.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from penstock.base.enums import Policy, Role, Source
from penstock.base.fields import (
    EXACT_INT_MAX,
    JOB_NAME,
    MAX_REPLICAS,
    CamelCase,
    Count,
    Flag,
    Generation,
    Int64,
    PerRole,
    ShortText,
)
from penstock.base.structural import Keywords, Model, Rule
from penstock.base.targets import RankTarget as RankTarget  # they were here before
from penstock.base.targets import Resources as Resources
from penstock.base.targets import RoleTarget
from penstock.crds.conditions import ScaleCondition
from penstock.crds.group import API_VERSION, SCALE_KIND, SCALE_PLURAL
from penstock.crds.meta import Conditions, ObjectMeta
from penstock.crds.replica_spec import NO_SPARES
from penstock.crds.resource import AGE, Column, CustomResource


class JobReference(Model):
    """The job that a Scale is for, in the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=JOB_NAME)] = Field(
        description="Name of the ElasticJob, which is in the same namespace."
    )
    uid: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        description="The job's metadata.uid; a Scale with the uid of an earlier job of that name is"
        " refused."
    )


class Algorithm(Model):
    """What computed a Scale."""

    name: ShortText = Field(description="Name of the algorithm.")
    version: ShortText | None = Field(default=None, description="Version of the algorithm.")


RoleTargets = Annotated[
    dict[Role, RoleTarget],
    Field(min_length=1),
    PerRole(
        "Targets of the {role}; what is absent stays as it is.",
        rules={role: (NO_SPARES,) for role in Role if role is not Role.WORKER},
    ),
]
"""Targets by role; a role that is absent stays as it is."""


class ScaleSpec(Model):
    """What some roles of one job should be; immutable."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(cel="self == oldSelf", message="a Scale is immutable: create another one instead"),
    )

    job_ref: JobReference = Field(description="The job that the Scale is for.")
    roles: RoleTargets = Field(description="Targets by role; a role that is absent stays as it is.")
    source: Source = Field(description="Who wrote the Scale.")
    reason: CamelCase | None = Field(default=None, description="Why, in one CamelCase word.")
    message: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="The reason in words, for people."
    )
    algorithm: Algorithm | None = Field(default=None, description="What computed the Scale.")
    policy: Policy = Field(
        default=Policy.APPLY,
        description="How long it counts. Apply: until a newer Scale says otherwise. Pin: it holds"
        " its roles, whatever newer Scales say, until it is deleted.",
    )
    job_generation: Annotated[Int64, Field(ge=1, le=EXACT_INT_MAX)] | None = Field(
        default=None,
        description="The job's metadata.generation that the Scale was computed from; if the job has"
        " moved on when the Scale is admitted, it is refused with StaleJob.",
    )
    dry_run: Flag = Field(
        default=False,
        description="Whether only to report in status.preview what would be done.",
    )
    ttl_seconds_after_finished: Count = Field(
        default=3600, description="Seconds after its end at which the Scale may be deleted."
    )


_PREVIEW_LIMIT: Final = len(Role) * MAX_REPLICAS
_RankNames = Annotated[
    list[
        Annotated[
            str,
            Field(min_length=1, max_length=32, description="ROLE-RANK, such as worker-3."),
        ]
    ],
    Field(max_length=_PREVIEW_LIMIT),
    Keywords(**{"x-kubernetes-list-type": "atomic"}),
]


class Preview(Model):
    """What a dry run would do."""

    created: _RankNames | None = Field(default=None, description="Pods that would be created.")
    removed: _RankNames | None = Field(default=None, description="Pods that would be removed.")
    resized: _RankNames | None = Field(default=None, description="Pods that would be resized.")


_ADMISSION_IS_FINAL: Final = Rule(
    cel="oldSelf.all(was, was.type != 'Admitted' || was.status == 'Unknown' || "
    "self.exists(now, now.type == 'Admitted' && now.status == was.status))",
    message="a Scale is admitted or refused once: condition Admitted can be neither changed nor"
    " removed",
)


_Number = Annotated[Int64, Field(ge=1, le=EXACT_INT_MAX)]
_NUMBER_IS_FINAL: Final = Rule(
    cel="self == oldSelf", message="a Scale has one number: it cannot be changed"
)


class ScaleStatus(Model):
    """What became of the Scale; written by the controller."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(oldSelf.conditions) || has(self.conditions)",
            message="conditions, once written, cannot be removed as a whole",
            field_path=".conditions",
        ),
        Rule(
            cel="!has(oldSelf.number) || has(self.number)",
            message="number, once written, cannot be removed",
            field_path=".number",
        ),
    )

    observed_generation: Generation | None = Field(
        default=None, description="The metadata.generation of the Scale that this status is about."
    )
    conditions: Annotated[Conditions, Keywords(_ADMISSION_IS_FINAL)] | None = Field(
        default=None, description="Admitted, Prepared, Applied, Superseded and Failed."
    )
    number: Annotated[_Number, Keywords(_NUMBER_IS_FINAL)] | None = Field(
        default=None,
        description="Its place among the job's Scales, given when it is admitted or refused: of two"
        " that decide the same, the higher counts.",
    )
    preview: Preview | None = Field(
        default=None, description="For a dry run: what would be done to which pods."
    )


class Scale(Model):
    """Targets of some roles of one ElasticJob: a plan, or a person's override."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(oldSelf.status) || has(self.status)",
            message="status, once written, cannot be removed",
            field_path=".status",
        ),
    )

    api_version: Literal["penstock.dev/v1alpha1"] = API_VERSION
    kind: Literal["Scale"] = SCALE_KIND
    metadata: ObjectMeta
    spec: ScaleSpec = Field(description="What some roles of the job should be; immutable.")
    status: ScaleStatus | None = Field(
        default=None, description="What became of the Scale; written by the controller."
    )


def _condition_column(condition: ScaleCondition, description: str) -> Column:
    path = f'.status.conditions[?(@.type=="{condition}")].status'
    return Column(str(condition), path, description)


SCALE: Final = CustomResource(
    model=Scale,
    kind=SCALE_KIND,
    plural=SCALE_PLURAL,
    short_names=("ejs",),
    categories=("elastic",),
    columns=(
        Column("Job", ".spec.jobRef.name", "The job that it is for."),
        Column("Source", ".spec.source", "Who wrote it."),
        Column("Policy", ".spec.policy", "Apply or Pin."),
        Column("Reason", ".spec.reason", "Why it was written."),
        _condition_column(ScaleCondition.ADMITTED, "Whether it counts."),
        _condition_column(ScaleCondition.APPLIED, "Whether the job is as it says."),
        Column("Message", ".spec.message", "The reason in words.", wide=True),
        AGE,
    ),
)
