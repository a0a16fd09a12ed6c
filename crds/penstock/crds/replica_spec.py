"""The roles of an ElasticJob: how many pods each has, between which bounds, from which template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import Field

from penstock.base.enums import Role
from penstock.base.fields import MAX_REPLICAS, Int32, Replicas
from penstock.base.structural import Model, Rule
from penstock.crds.template import PodTemplate

_MIN_WITHIN_MAX: Final = Rule(
    cel="!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    message="minReplicas must not be greater than maxReplicas",
    field_path=".minReplicas",
)
_REPLICAS_WITHIN_BOUNDS: Final = Rule(
    cel="self.replicas == 0 || (self.minReplicas <= self.replicas && "
    "(!has(self.maxReplicas) || self.replicas <= self.maxReplicas))",
    message="replicas must be 0, which leaves the number to the plan, or from minReplicas to "
    "maxReplicas",
    field_path=".replicas",
)
_SPARES_WITHIN_RANKS: Final = Rule(
    cel="self.spareReplicas + (has(self.maxReplicas) ? self.maxReplicas : self.replicas)"
    f" <= {MAX_REPLICAS}",
    message=f"spareReplicas and maxReplicas (replicas where there is none) must not add up to more "
    f"than {MAX_REPLICAS}",
    field_path=".spareReplicas",
)
NO_SPARES: Final = Rule(
    cel="!has(self.spareReplicas) || self.spareReplicas == 0",
    message="only the role worker can have spareReplicas",
    field_path=".spareReplicas",
)


_IN_UNITS: Final = Rule(
    cel="!has(self.nodeUnit) || (self.minReplicas % self.nodeUnit == 0 && "
    "self.replicas % self.nodeUnit == 0 && self.spareReplicas % self.nodeUnit == 0 && "
    "(!has(self.maxReplicas) || self.maxReplicas % self.nodeUnit == 0))",
    message="minReplicas, replicas, maxReplicas and spareReplicas must be multiples of nodeUnit",
    field_path=".nodeUnit",
)


def _zero(count: int) -> bool:
    return count == 0


class ReplicaSpec(Model):
    """One role of a job: how many pods, between which bounds, made from which template."""

    rules: ClassVar[tuple[Rule, ...]] = (_MIN_WITHIN_MAX, _REPLICAS_WITHIN_BOUNDS, NO_SPARES)

    replicas: Replicas = Field(
        default=0,
        description="Number of replicas. 0 leaves it to the plan, and to minReplicas while there is"
        " no plan; any other number is fixed and overrides every plan.",
    )
    min_replicas: Replicas = Field(default=1, description="Least number that a plan may choose.")
    max_replicas: Replicas | None = Field(
        default=None,
        description="Greatest number that a plan may choose; without it, resourceLimits and "
        f"{MAX_REPLICAS} are the bounds.",
    )
    spare_replicas: Replicas = Field(
        default_factory=int,  # no default in the schema: for other roles the field says nothing
        exclude_if=_zero,
        description="Only the role worker can have spares; 0 elsewhere.",
    )
    template: PodTemplate = Field(
        description="Template of the role's pods. A change reaches new incarnations only."
    )


class WorkerSpec(ReplicaSpec):
    """The training workers: at least one, and the only role with spares."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _MIN_WITHIN_MAX,
        _REPLICAS_WITHIN_BOUNDS,
        _SPARES_WITHIN_RANKS,
        _IN_UNITS,
    )

    min_replicas: Annotated[Int32, Field(ge=1, le=MAX_REPLICAS)] = Field(
        default=1, description="Least number that a plan may choose."
    )
    max_replicas: Annotated[Int32, Field(ge=1, le=MAX_REPLICAS)] | None = Field(
        default=None,
        description="Greatest number that a plan may choose; without it, resourceLimits and "
        f"{MAX_REPLICAS} are the bounds. As the job is created, it also fixes into how many slots "
        "a training step is cut (64 without it).",
    )
    node_unit: Annotated[Int32, Field(ge=1, le=MAX_REPLICAS)] | None = Field(
        default=None,
        description="How many workers come and go together, such as those of one switch or of one"
        " model-parallel group: their number is a multiple of it, and what a plan says is rounded"
        " down to one. With penstock run --replica-group so many pods are one replica group, unless"
        " --replica-group-pods says otherwise. Without it, one.",
    )
    spare_replicas: Replicas = Field(
        default=0,
        description="Workers beyond maxReplicas and beyond the quota, at a lower priority and so "
        "the first to be preempted.",
    )

    @property
    def unit(self) -> int:
        """How many workers come and go together."""
        return self.node_unit or 1


class DataWorkerSpec(ReplicaSpec):
    """The data workers, of which a plan may choose none."""

    min_replicas: Replicas = Field(default=0, description="Least number that a plan may choose.")


class ReplicaSpecs(Model):
    """The roles of a job; only the training workers are required."""

    worker: WorkerSpec = Field(
        description="The training workers, which compute the gradients; rank 0 is the chief."
    )
    ps: ReplicaSpec | None = Field(
        default=None,
        description="The parameter servers, which hold the parameters; exactly with strategy "
        "ParameterServer.",
    )
    data_worker: DataWorkerSpec | None = Field(
        default=None,
        description="The data workers, which read and prepare batches for the training workers. "
        "Without it they are made from the worker's template, less its accelerators.",
    )
    accelerated_data_worker: DataWorkerSpec | None = Field(
        default=None,
        description="The accelerated data workers, which run the stages of the input that need an "
        "accelerator; their template must ask for one. Without it they are made from the worker's "
        "template, with one of its accelerators.",
    )
    evaluator: ReplicaSpec | None = Field(
        default=None, description="The evaluators, which test checkpoints beside the training."
    )

    def by_role(self) -> dict[Role, ReplicaSpec]:
        """The roles that the job declares, in the order of `Role`."""
        specs: dict[Role, ReplicaSpec | None] = {
            role: getattr(self, name) for role, name in _ATTRIBUTES.items()
        }
        return {role: spec for role, spec in specs.items() if spec is not None}

    def with_roles(self, changed: Mapping[Role, ReplicaSpec]) -> ReplicaSpecs:
        """The same roles, those that are given as they are given."""
        return self.model_copy(update={_ATTRIBUTES[role]: one for role, one in changed.items()})


_ATTRIBUTES: Final = {
    Role.WORKER: "worker",
    Role.PS: "ps",
    Role.DATA_WORKER: "data_worker",
    Role.ACCELERATED_DATA_WORKER: "accelerated_data_worker",
    Role.EVALUATOR: "evaluator",
}
