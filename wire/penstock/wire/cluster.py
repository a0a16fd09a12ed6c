"""What the cluster scheduler shows of the cluster: pushed as a whole, read in pages."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from penstock.wire.base import NO_NUL, Counter, Name, Rate, Seconds, Text, WireModel

MAX_NODES: Final = 5000
MAX_ALLOCATIONS: Final = 500

Share = Annotated[float, Field(ge=-1, le=1)]
ShortName = Annotated[str, Field(min_length=1, max_length=128, pattern=NO_NUL)]


class Node(WireModel):
    """One node."""

    name: Annotated[Name, Field(min_length=1)]
    milli_cpu: Counter
    """Allocatable CPU."""
    free_milli_cpu: Counter
    memory_bytes: Counter = 0
    """Allocatable memory."""
    free_memory_bytes: Counter = 0
    accelerators: Rate = 0.0
    """Allocatable accelerators, shares counted as shares."""
    free_accelerators: Rate = 0.0
    accelerator: Name = ""
    """Their kind."""
    fragmentation: Share
    """Share of free CPU less share of free accelerators: below 0, accelerators will strand for
    want of CPU; above 0, CPUs will."""
    cordoned: bool = False


class Allocation(WireModel):
    """One decision: where a data worker went, or why it went nowhere."""

    id: ShortName
    """Names the decision; sent again, it is not stored again."""
    time: Seconds
    job_uid: Annotated[str, Field(min_length=1, max_length=64)]
    job: Name = ""
    namespace: Name = ""
    pod: Name = ""
    node: Name = ""
    """Empty: it was not placed."""
    policy: Name = ""
    reason: Annotated[str, Field(max_length=64)] = ""
    message: Text = ""
    runner_up: Name = ""
    """The node that would have been next."""
    figures: Annotated[dict[ShortName, float], Field(max_length=32)] = Field(default_factory=dict)


class ClusterSnapshot(WireModel):
    """The whole cluster: the body of ``PUT /v1/cluster/snapshot``."""

    time: Seconds
    stranded_gpus: Rate
    stranded_cpu_cores: Rate
    nodes: Annotated[list[Node], Field(max_length=MAX_NODES)]
    allocations: Annotated[list[Allocation], Field(max_length=MAX_ALLOCATIONS)] = Field(
        default_factory=list
    )
    """Decisions since the last snapshot."""


class NodeView(Node):
    """One node, and when it was seen."""

    time: Seconds


class FragmentationView(WireModel):
    """The fragmentation of the cluster at one moment."""

    time: Seconds
    stranded_gpus: Rate
    stranded_cpu_cores: Rate
    nodes: dict[str, Share]
    """By node."""


class AuditEntry(WireModel):
    """One change that a person made."""

    time_seconds: Seconds
    actor: Name
    action: Name
    job_uid: str | None = None
    subject: Name = ""
    detail: dict[str, Any] = Field(default_factory=dict)
