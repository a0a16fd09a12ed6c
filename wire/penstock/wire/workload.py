"""The pods of a cluster and the nodes they are on or before: pushed by the scheduler as a whole.

What `POST /v1/cluster/whatif` is answered from. Pods that are alike are one group.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from penstock.wire.base import NO_NUL, Counter, Name, Seconds, WireModel

MAX_WORKLOAD_NODES: Final = 1500
MAX_POD_GROUPS: Final = 2000

Label = Annotated[str, Field(max_length=320, pattern=NO_NUL)]
Word = Annotated[str, Field(max_length=32, pattern=NO_NUL)]
JobUid = Annotated[str, Field(max_length=64, pattern=NO_NUL)]
PodCount = Annotated[int, Field(ge=0, le=10_000)]
Kinds = Annotated[dict[Name, Annotated[int, Field(ge=0, le=1024)]], Field(max_length=16)]


class Resources(WireModel):
    """CPU, memory, and accelerators by kind."""

    milli_cpu: Counter = 0
    memory_bytes: Counter = 0
    accelerators: Kinds = Field(default_factory=dict)


class NodeTaint(WireModel):
    """A taint of a node."""

    key: Label
    value: Label = ""
    effect: Word = ""


class WorkloadNode(WireModel):
    """One node."""

    name: Annotated[Name, Field(min_length=1)]
    allocatable: Resources
    labels: Annotated[dict[Label, Label], Field(max_length=64)] = Field(default_factory=dict)
    """Those that a pod of the workload asks for."""
    taints: Annotated[list[NodeTaint], Field(max_length=32)] = Field(default_factory=list)
    cordoned: bool = False
    most_pods: Counter | None = None
    others: Resources = Resources()
    """What pods of no job hold of it."""
    other_pods: PodCount = 0


class LabelExpression(WireModel):
    """One requirement of a node affinity, as Kubernetes has it."""

    key: Label
    operator: Word
    values: Annotated[list[Label], Field(max_length=256)] = Field(default_factory=list)


class AffinityTerm(WireModel):
    """A required term: all of its expressions hold."""

    labels: Annotated[list[LabelExpression], Field(max_length=64)] = Field(default_factory=list)
    fields: Annotated[list[LabelExpression], Field(max_length=64)] = Field(default_factory=list)


class PodToleration(WireModel):
    """A toleration of a pod."""

    key: Label = ""
    operator: Word = "Equal"
    value: Label = ""
    effect: Word = ""


class PodConstraints(WireModel):
    """Where pods may run."""

    node_selector: Annotated[dict[Label, Label], Field(max_length=64)] = Field(default_factory=dict)
    affinity: Annotated[list[AffinityTerm], Field(max_length=64)] | None = None
    tolerations: Annotated[list[PodToleration], Field(max_length=64)] = Field(default_factory=list)


class WorkloadPods(WireModel):
    """Pods that are alike."""

    job: JobUid = ""
    """Its uid; empty: pods of no job, which wait."""
    role: Word = ""
    node: Name = ""
    """Where they are; empty: they wait for a node."""
    count: PodCount = 1
    request: Resources
    """Of each."""
    constraints: Counter = 0
    """Their place in the list of constraints."""
    priority: Annotated[int, Field(ge=-(2**31), le=2**31)] = 0
    created: Seconds = 0.0
    """When the first of them was made."""


class WorkloadJob(WireModel):
    """A job that has pods in the cluster."""

    uid: JobUid
    namespace: Name
    name: Name
    together: Counter = 0
    """Workers and parameter servers that start together or not at all."""
    strategy: Word = ""
    signature: Annotated[dict[Word, Name], Field(max_length=8)] = Field(default_factory=dict)


class Workload(WireModel):
    """A cluster at one moment: the body of ``PUT /v1/cluster/workload``."""

    time: Seconds
    placement: Word = "stranding"
    """The scheduler's placement policy."""
    nodes: Annotated[list[WorkloadNode], Field(max_length=MAX_WORKLOAD_NODES)]
    constraints: Annotated[list[PodConstraints], Field(max_length=MAX_POD_GROUPS)] = Field(
        default_factory=list
    )
    pods: Annotated[list[WorkloadPods], Field(max_length=MAX_POD_GROUPS)] = Field(
        default_factory=list
    )
    jobs: Annotated[list[WorkloadJob], Field(max_length=MAX_POD_GROUPS)] = Field(
        default_factory=list
    )
    left_out: Counter = 0
    """Nodes and groups of pods that did not fit in."""
