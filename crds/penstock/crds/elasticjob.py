"""ElasticJob: a training job whose replicas may grow, shrink and be replaced while it runs.

The only definition of the resource: `penstock.crds.schema` derives the CRD from it. Rules between
fields and on changes are CEL, evaluated by the API server, and every rule guards the optional
fields that it reads with ``has()``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from penstock.base.enums import Framework, Objective, OnHang, Optimize, Strategy
from penstock.base.fields import (
    INT32_MAX,
    JOB_NAME,
    Count,
    Flag,
    Int32,
    Int64,
    NullsAreAbsent,
    PositiveQuantity,
    Quantity,
    Timestamp,
    VolumeName,
)
from penstock.base.structural import Keywords, Model, Rule
from penstock.crds.gang import Gang
from penstock.crds.group import API_VERSION, ELASTICJOB_KIND, ELASTICJOB_PLURAL
from penstock.crds.input import Input, immutable
from penstock.crds.job_status import ElasticJobStatus
from penstock.crds.meta import ObjectMeta
from penstock.crds.replica_spec import ReplicaSpecs
from penstock.crds.resource import AGE, Column, CustomResource, ScaleSubresource
from penstock.crds.snapshots import SNAPSHOTS_OF_WORKERS, Snapshots
from penstock.crds.template import PodTemplateOverlay
from penstock.crds.tensorflow_rules import TENSORFLOW_RULES

_MANAGER: Final = (
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    r"/[A-Za-z0-9/._~%!$&()*+,;=:-]+$"
)
_RESOURCE_NAME: Final = (
    "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)


_SignatureText = Annotated[str, Field(min_length=1, max_length=253)]


class Signature(Model):
    """What makes two jobs similar, for the Brain's history."""

    model: _SignatureText | None = Field(default=None, description="The model that is trained.")
    dataset: _SignatureText | None = Field(
        default=None, description="The data that it learns from."
    )
    user: _SignatureText | None = Field(default=None, description="The person or team that trains.")
    code: _SignatureText | None = Field(
        default=None, description="The program's version: a commit, or the digest of an image."
    )


class FailurePolicy(Model):
    """How often a rank may be replaced, counted per rank."""

    max_restarts: Annotated[Int32, Field(ge=0, le=1000)] = Field(
        default=3, description="Failures that each rank may have before the job fails."
    )
    max_preemptions: Annotated[Int32, Field(ge=0, le=100_000)] = Field(
        default=100,
        description="Preemptions, evictions and lost nodes that each rank may have before the job "
        "fails; none of them counts as a failure.",
    )
    on_hang: OnHang | None = Field(
        default=None,
        description="What follows when a training process stands still. Report: it is named."
        " Restart: it is ended, and started again in its pod. Replace: its pod fails, which counts"
        " against maxRestarts, and is replaced. Each rank is ended so at most maxRestarts times;"
        " after that, and where the process waits for data or a checkpoint or its machine says"
        " that it moves, it is only named. Without it: Report.",
    )
    on_hang_after_seconds: Annotated[Int32, Field(ge=1, le=86400)] | None = Field(
        default=None,
        description="How much longer than its longest pause so far a process may stand still"
        " before onHang has it ended; 60 without it.",
    )


class Trainer(Model):
    """The Elastic Trainer: the pod that hands out the data, watches the job and asks the Brain."""

    template: PodTemplateOverlay | None = Field(
        default=None,
        description="Pod template laid over the one that Penstock makes; give only what differs.",
    )


_RESOURCE_KEYS: Final = Rule(
    cel=f"self.all(name, name.matches('{_RESOURCE_NAME}'))",
    message="each key must be the name of a resource, such as cpu, memory or nvidia.com/gpu",
)
_SERVERS_NEEDED: Final = Rule(
    cel="self.strategy != 'ParameterServer' || has(self.replicaSpecs.ps)",
    message="with strategy ParameterServer, replicaSpecs.ps is required",
    field_path=".replicaSpecs",
)
_SERVERS_REFUSED: Final = Rule(
    cel="self.strategy == 'ParameterServer' || !has(self.replicaSpecs.ps)",
    message="replicaSpecs.ps needs strategy ParameterServer",
    field_path=".replicaSpecs.ps",
)
_LOCAL_HAS_ONE_WORKER: Final = Rule(
    cel="self.strategy != 'Local' || (self.replicaSpecs.worker.minReplicas <= 1 && "
    "self.replicaSpecs.worker.replicas <= 1 && "
    "(!has(self.replicaSpecs.worker.maxReplicas) || self.replicaSpecs.worker.maxReplicas <= 1) && "
    "self.replicaSpecs.worker.spareReplicas == 0)",
    message="with strategy Local there is one worker: its replicas, minReplicas and maxReplicas "
    "must not be greater than 1, and it has no spareReplicas",
    field_path=".replicaSpecs.worker",
)
_STATE_VOLUME_EXISTS: Final = Rule(
    cel="!has(self.stateVolume) || (has(self.trainer) && has(self.trainer.template) && "
    "has(self.trainer.template.spec) && has(self.trainer.template.spec.volumes) && "
    "self.trainer.template.spec.volumes.exists(volume, volume.name == self.stateVolume))",
    message="stateVolume must be the name of a volume in trainer.template.spec.volumes",
    field_path=".stateVolume",
)


_DEADLINE_GIVEN: Final = Rule(
    cel="!has(self.objective) || self.objective != 'Deadline' || has(self.deadline)",
    message="with objective Deadline, deadline is required",
    field_path=".deadline",
)
_DEADLINE_MEANT: Final = Rule(
    cel="!has(self.deadline) || (has(self.objective) && self.objective == 'Deadline')",
    message="deadline needs objective Deadline",
    field_path=".deadline",
)


class ElasticJobSpec(Model):
    """What the job should be; written by its owner."""

    rules: ClassVar[tuple[Rule, ...]] = (
        immutable("managedBy"),
        immutable("stateVolume"),
        _SERVERS_NEEDED,
        _SERVERS_REFUSED,
        _LOCAL_HAS_ONE_WORKER,
        _STATE_VOLUME_EXISTS,
        _DEADLINE_GIVEN,
        _DEADLINE_MEANT,
        immutable("framework"),
        immutable("gang"),
        SNAPSHOTS_OF_WORKERS,
        *TENSORFLOW_RULES,
    )

    strategy: Annotated[
        Strategy,
        Keywords(
            Rule(
                cel="self == oldSelf",
                message="strategy is immutable: create a new job to change it",
            )
        ),
    ] = Field(
        description="How the replicas train together; immutable. AllReduce: workers exchange"
        " gradients. ParameterServer: servers hold the parameters. Local: one worker."
    )
    framework: Framework | None = Field(
        default=None,
        description="What the programs train with; immutable. TensorFlow: they are told of one"
        " another by TF_CONFIG, so the numbers of workers and of parameter servers are fixed by"
        " replicas; with strategy ParameterServer worker 0 is the chief, and the job ends with it."
        " Without it: PyTorch.",
    )
    independent_workers: Flag | None = Field(
        default=None,
        description="Whether each worker runs a program of its own. Unless so, workers that train"
        " without ever forming a group, each a copy of the model on all data, end the job as"
        " Failed with reason SeparateCopies.",
    )
    node_check: Flag | None = Field(
        default=None,
        description="Whether the machines of workers are measured before their programs begin, for"
        " at most five seconds: compute, memory and the link to another worker. The rank of one"
        " that is much slower than the others of its kind, or fails, is put on another node.",
    )
    node_check_while_training: Flag | None = Field(
        default=None,
        description="Whether workers of a session measure their machines again between steps, for"
        " at most a thousandth of the time. One that has become much slower than the others of its"
        " kind, or fails, is named and reported to the Brain; its rank stays where it is.",
    )
    optimize: Optimize = Field(
        default=Optimize.AUTO,
        description="What the Brain may do. Auto: plan, and adjust while the job runs. Initial:"
        " plan once, as the job is created. Manual: nothing; the job is what this spec says.",
    )
    objective: Objective | None = Field(
        default=None,
        description="What the Brain chooses numbers and sizes for. Fastest: whatever adds speed,"
        " within resourceLimits. Cheapest: the least cost of a training step. Deadline: the fewest"
        " resources with which the job ends by deadline, as far as that is possible. Without it:"
        " what adds speed in proportion to what it takes.",
    )
    deadline: Timestamp | None = Field(
        default=None,
        description="By when the job is to have ended, with objective Deadline. One that cannot be"
        " kept, or is past, makes the job as fast as it can be; it ends no job.",
    )
    budget: PositiveQuantity | None = Field(
        default=None,
        description="What the job may cost, in the currency of the Brain's prices. Plans that are"
        " expected to cost more are not taken. A job that is expected to cost more as it is gets"
        " fewer resources, whatever its objective, and one that has cost it the cheapest; it says"
        " so, and is never ended for it. Without prices it changes nothing.",
    )
    suspend: Flag = Field(
        default=False,
        description="Whether the job is suspended: workers hand back their work, the pods are"
        " removed and the state is kept. Set to false, the job goes on at the same targets.",
    )
    managed_by: Annotated[str, Field(min_length=1, max_length=63, pattern=_MANAGER)] | None = Field(
        default=None,
        description="Another controller that runs the job, as DOMAIN/NAME; Penstock then leaves it"
        " alone. Immutable.",
    )
    resource_limits: (
        Annotated[
            dict[
                str,
                Annotated[Quantity, Keywords(description="A quantity, such as 500m, 4 or 1.5Gi.")],
            ],
            Field(max_length=8),
            Keywords(_RESOURCE_KEYS),
            NullsAreAbsent,
        ]
        | None
    ) = Field(
        default=None,
        description="Most that all pods of the job together may request: cpu, memory, and"
        " accelerators by their resource names.",
    )
    signature: Signature | None = Field(
        default=None,
        description="How the Brain finds similar past jobs: the more of these fields agree, the"
        " more similar.",
    )
    failure_policy: FailurePolicy = Field(
        default=FailurePolicy(),
        description="How often each rank may fail or be preempted before the job fails.",
    )
    active_deadline_seconds: Annotated[Int64, Field(ge=1, le=INT32_MAX)] | None = Field(
        default=None,
        description="Seconds after startTime at which the job fails if it has not ended; time spent"
        " suspended does not count.",
    )
    ttl_seconds_after_finished: Count | None = Field(
        default=None,
        description="Seconds after its end at which the job is deleted; without it, never.",
    )
    replica_specs: ReplicaSpecs = Field(description="The roles of the job.")
    gang: Gang | None = Field(
        default=None,
        description="The pods without which the training cannot begin start together or not at"
        " all, by the gang scheduler that the controller is set up for: replicas, else"
        " minReplicas, of workers and of parameter servers. Where there is none they start one by"
        " one, and condition Accepted says what is missing. Immutable.",
    )
    trainer: Trainer | None = Field(default=None, description="The Elastic Trainer's own pod.")
    input: Input = Field(default=Input(), description="The input pipeline.")
    snapshots: Snapshots | None = Field(
        default=None,
        description="Memory for copies of the state, beside what the training needs. Absent: what"
        " is free of the pod's memory, at most a quarter of it.",
    )
    state_volume: VolumeName | None = Field(
        default=None,
        description="Name of a volume in trainer.template.spec.volumes that keeps the trainer's"
        " journal and the index of checkpoints; without it they die with the trainer's pod."
        " Immutable.",
    )


class ElasticJob(Model):
    """A training job whose replicas may grow, shrink and be replaced while it runs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"size(self.metadata.name) <= 63 && self.metadata.name.matches('{JOB_NAME}')",
            message="metadata.name must be an RFC 1035 label: at most 63 lower-case letters,"
            " digits and hyphens, the first a letter, the last a letter or a digit",
            field_path=".metadata.name",
        ),
    )

    api_version: Literal["penstock.dev/v1alpha1"] = API_VERSION
    kind: Literal["ElasticJob"] = ELASTICJOB_KIND
    metadata: ObjectMeta
    spec: ElasticJobSpec = Field(description="What the job should be.")
    status: ElasticJobStatus | None = Field(
        default=None, description="What the job was last seen to be; written by the controller."
    )


ELASTICJOB: Final = CustomResource(
    model=ElasticJob,
    kind=ELASTICJOB_KIND,
    plural=ELASTICJOB_PLURAL,
    short_names=("ej",),
    categories=("all", "elastic"),
    columns=(
        Column("State", ".status.state", "The conditions in one word."),
        Column("Workers", ".status.workers", "Ready and desired training workers."),
        Column("Data", ".status.dataWorkers", "Ready and desired data workers."),
        Column("Plan", ".status.plan.name", "The Scale in force; none where the spec decides."),
        Column(
            "Accelerated",
            ".status.acceleratedDataWorkers",
            "Ready and desired accelerated data workers.",
            wide=True,
        ),
        Column("PS", ".status.ps", "Ready and desired parameter servers.", wide=True),
        Column("Strategy", ".spec.strategy", "How the replicas train together.", wide=True),
        Column("Optimize", ".spec.optimize", "What the Brain may do.", wide=True),
        AGE,
    ),
    scale=ScaleSubresource(
        spec_replicas_path=".spec.replicaSpecs.worker.replicas",
        status_replicas_path=".status.replicas.worker.created",
        label_selector_path=".status.selector",
    ),
)
