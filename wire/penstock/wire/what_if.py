"""What other nodes would do to the jobs that run and wait: the question, and its answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from penstock.wire.base import Counter, Name, Rate, Seconds, Text, WireModel
from penstock.wire.forecasts import Expected
from penstock.wire.workload import JobUid, Resources, Word

MOST_CHANGED: Final = 1000
MOST_ACCELERATORS: Final = 128
Counts = dict[Word, Counter]


class ClusterWhatIfRequest(WireModel):
    """The body of ``POST /v1/cluster/whatif``: `nodes` or `fail_node`."""

    nodes: Annotated[int, Field(ge=-MOST_CHANGED, le=MOST_CHANGED)] | None = None
    """Nodes more; below zero, fewer: those whose loss takes least from jobs."""
    shape: Resources | None = None
    """Of these nodes; absent: as the cluster's most common. The accelerator `gpu` is the kind that
    most nodes have; nodes that go may differ from it by a tenth of CPU and memory."""
    fail_node: Annotated[Name, Field(min_length=1)] | None = None
    """The node that would be gone."""

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if (self.nodes is None) == (self.fail_node is None):
            raise ValueError("ask either for nodes or for fail_node")
        if self.nodes == 0:
            raise ValueError("nodes is 0, which changes nothing: say more (1) or fewer (-1)")
        if self.shape is not None and self.nodes is None:
            raise ValueError("shape is of nodes that come or go: say nodes")
        if self.shape is not None and not self.shape.milli_cpu:
            raise ValueError("shape.milli_cpu is 0: a node without CPU runs no pod")
        if self.shape is not None and sum(self.shape.accelerators.values()) > MOST_ACCELERATORS:
            raise ValueError(f"shape.accelerators: a node has at most {MOST_ACCELERATORS} in all")
        return self


class JobEffect(StrEnum):
    """What a change would do to a job."""

    STARTS = "Starts"
    GROWS = "Grows"
    MOVES = "Moves"
    """It loses pods that fit elsewhere: it goes on from where its pods begin anew."""
    SHRINKS = "Shrinks"
    STOPS = "Stops"
    WAITS = "Waits"
    """It would have started, and does not."""


class Between(WireModel):
    """A figure, and between what it is expected to be."""

    value: Rate
    low: Rate
    high: Rate


class JobSide(WireModel):
    """A job with the nodes as they are, or as they would be."""

    pods: Counts
    """That have a node, by role."""
    steps_per_second: Between | None = None
    """Absent: nothing was measured."""
    remaining_seconds: Between | None = None
    """Until its steps are done; absent: its steps or its speed are unknown, or it does not run."""
    cost_per_hour: Rate | None = None
    """Of what its pods request; absent without prices."""
    remaining_cost: Between | None = None


class JobWhatIf(WireModel):
    """One job on which the change has an effect."""

    uid: JobUid
    namespace: Name
    name: Name
    effect: JobEffect
    lost: Counts
    """Pods whose node would go."""
    before: JobSide
    after: JobSide
    forecast_seconds: Expected | None = None
    """How long a job that starts would run, from finished ones like it."""
    forecast_cost: Expected | None = None
    note: Text = ""
    """Why figures are absent."""


class ClusterSide(WireModel):
    """The cluster once every pod that fits has been placed."""

    nodes: Counter
    cpu_cores: Rate
    free_cpu_cores: Rate
    accelerators: Rate
    free_accelerators: Rate
    stranded_accelerators: Rate
    """That cannot be used for lack of CPU."""
    stranded_cpu_cores: Rate
    waiting_pods: Counter
    """That fit nowhere."""


class ClusterWhatIf(WireModel):
    """What the change would do."""

    time: Seconds
    """When the scheduler looked at the cluster."""
    added: list[Name]
    removed: list[Name]
    shape: Resources | None = None
    """Of the nodes that are added."""
    before: ClusterSide
    after: ClusterSide
    jobs: list[JobWhatIf]
    """Those on which it has an effect."""
    unchanged_jobs: Counter
    currency: str | None = None
    nodes_per_hour: float | None = None
    """What the nodes that come or go cost at these prices; below zero: saved."""
    notes: list[Text]
    """What the answer does not look at."""
