"""What an algorithm is told and what it answers: the types every plan passes through.

``plan(history, job, limits, params) -> Plan | None`` is a pure function. It sees the world only
through the frozen values below, including the time (`History.now_seconds`), so the same call gives
the same plan in the Brain, in a test, in a simulator and a year later from the store.

Guarantees kept by the constructors: counts and sizes are in range, numbers are finite, a reason is
CamelCase. What depends on the job (its bounds and its quota) is checked by
`penstock.brain.plan_check`.

Units: CPU in milli-cores, memory in bytes, times in seconds since the epoch (any origin will do as
long as it is one). A speed in steps per second counts the steps of all workers together where the
strategy is ParameterServer (DLRover, section 4.1, equation 1) and global steps otherwise.

Mappings are read-only by agreement: nothing here copies them, nobody may change them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from penstock.base.enums import (
    DATA_ROLES,
    EventKind,
    Objective,
    Optimize,
    Role,
    Stage,
    Strategy,
    Trigger,
)
from penstock.throughput.profiles.profile import Profile

MAX_REPLICAS: Final = 4096
"""No role has more replicas than this; the custom resources say the same."""

MAX_MESSAGE: Final = 1024
"""Longest message of a plan, in characters; a Scale carries no more."""

DEFAULT_POD_MILLI_CPU: Final = 32_000
"""The most CPU one pod is given, where neither a node nor the job's limits say less."""

_CAMEL_CASE: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")


class PlanningError(ValueError):
    """A value handed to or by an algorithm is not what its field allows."""


class PlanReason(StrEnum):
    """The reasons that the algorithms of this distribution give for a plan."""

    SIMILAR_JOBS = "SimilarJobs"
    NO_HISTORY = "NoHistory"
    MEASURE_ONE_WORKER = "MeasureOneWorker"
    SERVERS_SHORT_OF_CPU = "ServersShortOfCpu"
    THROUGHPUT_MODEL = "ThroughputModel"
    SERVERS_FIRST = "ServersFirst"
    IDLE_SERVERS = "IdleServers"
    HOT_SERVER = "HotServer"
    OUT_OF_MEMORY = "OutOfMemory"
    SLOW_WORKER = "SlowWorker"
    SLOW_SERVER = "SlowServer"
    SCALING_EFFICIENT = "ScalingEfficient"
    SCALING_INEFFICIENT = "ScalingInefficient"
    DATA_STALL = "DataStall"
    PREDICTED_GAIN = "PredictedGain"
    PLATEAU = "Plateau"
    CHEAPEST = "Cheapest"
    DEADLINE = "Deadline"
    BUDGET = "Budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How similar jobs are found; an empty string is an unknown part."""

    model: str = ""
    dataset: str = ""
    user: str = ""
    code: str = ""


LEVELS: Final[tuple[tuple[str, ...], ...]] = (
    ("model", "dataset", "user"),
    ("model", "dataset"),
    ("dataset",),
    ("model",),
    ("user",),
)
"""The parts of a signature that must agree, most specific first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """What a job's spec says of one role.

    `fixed` is ``spec.replicaSpecs.ROLE.replicas`` where that is not 0: a plan does not change the
    count then. `maximum` None: bounded by the limits only. Replicas come in multiples of `unit`.
    `milli_cpu` and `memory_bytes` are the template's requests, None where it makes none.
    """

    minimum: int = 1
    maximum: int | None = None
    fixed: int | None = None
    milli_cpu: int | None = None
    memory_bytes: int | None = None
    spare: int = 0
    unit: int = 1

    def __post_init__(self) -> None:
        _in_range("minimum", self.minimum, 0, MAX_REPLICAS)
        _in_range("spare", self.spare, 0, MAX_REPLICAS)
        _in_range("unit", self.unit, 1, MAX_REPLICAS)
        if self.maximum is not None:
            _in_range("maximum", self.maximum, self.minimum, MAX_REPLICAS)
        if self.fixed is not None:
            _in_range("fixed", self.fixed, 1, MAX_REPLICAS)
        _positive("milli_cpu", self.milli_cpu)
        _positive("memory_bytes", self.memory_bytes)

    def most(self, unsaid: int) -> int:
        """The most replicas that a plan may choose; ``unsaid`` where the spec says nothing."""
        return self.fixed or (unsaid if self.maximum is None else self.maximum)

    def clamp(self, replicas: int) -> int:
        """The count that the spec allows for `replicas`: within its bounds, in whole units."""
        if self.fixed is not None:
            return self.fixed
        ceiling = MAX_REPLICAS if self.maximum is None else self.maximum
        within = max(self.minimum, min(replicas, ceiling))
        return max(self.minimum, within - within % self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """One job as it was registered; `slots_per_step` is the ledger's M (see the data plane)."""

    uid: str
    name: str = ""
    namespace: str = ""
    strategy: Strategy
    optimize: Optimize = Optimize.AUTO
    signature: Signature = Signature()
    roles: Mapping[Role, RoleSpec]
    slots_per_step: int | None = None
    global_batch: int | None = None
    total_steps: int | None = None
    objective: Objective | None = None
    deadline_seconds: float | None = None
    budget: float | None = None

    def role(self, role: Role) -> RoleSpec:
        """The spec of `role`; the defaults where the job does not name it."""
        return self.roles.get(role) or RoleSpec(minimum=0 if role in DATA_ROLES else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan may ask for.

    `milli_cpu` and `memory_bytes` are the job-wide caps (C_total for CPU), None where the job has
    none. `pod_milli_cpu` is C_max: the least of 32 cores, the largest allocatable CPU of a node
    that the job's pods may run on, and the job's own cap. `pod_memory_bytes` likewise.
    `core_milli_cpu` is what an algorithm takes for one core (`penstock.brain.cpu_unit`): algorithms
    themselves always see 1000.
    """

    milli_cpu: int | None = None
    memory_bytes: int | None = None
    pod_milli_cpu: int = DEFAULT_POD_MILLI_CPU
    pod_memory_bytes: int | None = None
    core_milli_cpu: int = 1000

    def __post_init__(self) -> None:
        _positive("milli_cpu", self.milli_cpu)
        _positive("memory_bytes", self.memory_bytes)
        _positive("pod_milli_cpu", self.pod_milli_cpu)
        _positive("pod_memory_bytes", self.pod_memory_bytes)
        _in_range("core_milli_cpu", self.core_milli_cpu, 10, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSample:
    """One pod over one sampling interval: means, except memory, which is the peak.

    `milli_cpu` and `memory_bytes` are used, the `_limit` fields are granted (None: unknown).
    `steps_per_second` is a worker's own speed, `step_seconds` the mean time of its steps;
    `node` names its node. `wait_share` is the part of the time spent waiting for input (0 to 1),
    `gpu_utilization` the mean utilisation of the pod's GPUs (0 to 1; None: none is measured).
    """

    milli_cpu: float
    memory_bytes: int = 0
    milli_cpu_limit: int | None = None
    memory_limit_bytes: int | None = None
    steps_per_second: float | None = None
    step_seconds: float | None = None
    wait_share: float | None = None
    gpu_utilization: float | None = None
    node: str = ""

    def __post_init__(self) -> None:
        _finite("milli_cpu", self.milli_cpu)
        _finite("memory_bytes", self.memory_bytes)
        _positive("milli_cpu_limit", self.milli_cpu_limit)
        _positive("memory_limit_bytes", self.memory_limit_bytes)
        # One by one: a history has tens of thousands of these.
        if self.steps_per_second is not None:
            _finite("steps_per_second", self.steps_per_second)
        if self.step_seconds is not None:
            _finite("step_seconds", self.step_seconds)
        if self.wait_share is not None:
            _finite("wait_share", self.wait_share)
        if self.gpu_utilization is not None:
            _finite("gpu_utilization", self.gpu_utilization)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a job did over the `interval_seconds` that end at `time_seconds`.

    Every pod that trained through the whole interval has a row in `roles`.
    """

    time_seconds: float
    step: int
    steps_per_second: float
    samples_per_second: float = 0.0
    world_size: int = 0
    interval_seconds: float = 15.0
    roles: Mapping[Role, Mapping[int, RankSample]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not math.isfinite(self.time_seconds):
            raise PlanningError(f"time_seconds must be finite, got {self.time_seconds!r}")
        for name in ("step", "steps_per_second", "samples_per_second", "interval_seconds"):
            _finite(name, getattr(self, name))

    def ranks(self, role: Role) -> Mapping[int, RankSample]:
        """The ranks of `role` that reported in this sample, by rank."""
        return self.roles.get(role) or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something that happened to one pod; memory is what its limit was."""

    time_seconds: float
    kind: EventKind
    role: Role
    rank: int
    memory_limit_bytes: int | None = None
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleUsage:
    """What the replicas of one role used over the life of a finished job.

    `milli_cpu` is the mean of the sum over all replicas, `hottest_milli_cpu` the largest mean of
    one replica, `peak_memory_bytes` the largest peak of one replica and `total_memory_bytes` the
    sum of their peaks.
    """

    replicas: int
    milli_cpu: float
    hottest_milli_cpu: float
    peak_memory_bytes: int
    total_memory_bytes: int

    def __post_init__(self) -> None:
        _in_range("replicas", self.replicas, 0, MAX_REPLICAS)
        for name in (
            "milli_cpu",
            "hottest_milli_cpu",
            "peak_memory_bytes",
            "total_memory_bytes",
        ):
            _finite(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """A finished job, summed up."""

    uid: str
    signature: Signature
    strategy: Strategy
    finished_seconds: float
    succeeded: bool
    roles: Mapping[Role, RoleUsage]
    steps_per_second: float = 0.0
    out_of_memory: frozenset[Role] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """Other resources, a replacement or another node for one rank; None is unchanged."""

    milli_cpu: int | None = None
    memory_bytes: int | None = None
    replace: bool = False
    avoid_nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _positive("milli_cpu", self.milli_cpu)
        _positive("memory_bytes", self.memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePlan:
    """What one role should be; None is unchanged. `replicas` does not count the spare ones."""

    replicas: int | None = None
    spare_replicas: int | None = None
    milli_cpu: int | None = None
    memory_bytes: int | None = None
    ranks: Mapping[int, RankPlan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("replicas", "spare_replicas"):
            value = getattr(self, name)
            if value is not None:
                _in_range(name, value, 0, MAX_REPLICAS)
        _positive("milli_cpu", self.milli_cpu)
        _positive("memory_bytes", self.memory_bytes)
        for rank in self.ranks:
            _in_range("ranks", rank, 0, MAX_REPLICAS - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a plan was made from: which samples, which past jobs, and the figures that decided."""

    samples: int = 0
    first_sample_seconds: float | None = None
    last_sample_seconds: float | None = None
    past_jobs: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.figures.items():
            if not math.isfinite(value):
                raise PlanningError(f"evidence.figures[{name!r}] must be finite, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The speed expected once the plan is in force; about 9 in 10 fall within the error."""

    steps_per_second: float
    error_steps_per_second: float

    def __post_init__(self) -> None:
        _finite("steps_per_second", self.steps_per_second)
        _finite("error_steps_per_second", self.error_steps_per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWorkerDemand:
    """How many data workers a job can use, and of what size: a hand-over to the scheduler."""

    replicas: int
    milli_cpu: int
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        _in_range("replicas", self.replicas, 0, MAX_REPLICAS)
        _positive("milli_cpu", self.milli_cpu)
        _positive("memory_bytes", self.memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a job should become, why, from what, and what is expected of it.

    A role that is absent from `roles` is unchanged. `shard_weights` gives worker ranks a share of
    the data other than 1 (a slow worker gets less); it asks for no pod to change.
    """

    stage: Stage
    algorithm: str
    roles: Mapping[Role, RolePlan]
    reason: str
    message: str
    evidence: Evidence = Evidence()
    prediction: Prediction | None = None
    shard_weights: Mapping[int, float] = field(default_factory=dict)
    data_workers: DataWorkerDemand | None = None

    def __post_init__(self) -> None:
        if not _CAMEL_CASE.fullmatch(self.reason):
            raise PlanningError(f"reason must be CamelCase, got {self.reason!r}")
        if not self.message.strip():
            raise PlanningError("message must say in a sentence why the plan was made")
        if len(self.message) > MAX_MESSAGE:
            raise PlanningError(f"message has {len(self.message)} characters of {MAX_MESSAGE}")
        if not (self.roles or self.shard_weights or self.data_workers):
            raise PlanningError("a plan must change something; answer None where nothing should")
        for rank, weight in self.shard_weights.items():
            if not 0 < weight <= 1:
                raise PlanningError(
                    f"shard_weights[{rank}] must be above 0 and at most 1, got {weight!r}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedPlan:
    """A plan of this job that took effect, and when.

    `settled_seconds`: since when all its pods have been training; None while they are not.
    """

    applied_seconds: float
    roles: Mapping[Role, RolePlan]
    stage: Stage
    reason: str = ""
    settled_seconds: float | None = None
    shard_weights: Mapping[int, float] = field(default_factory=dict)
    data_workers: DataWorkerDemand | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A job that shares batches with others, as its newest sample says.

    `batches_per_second` is what it would take if it never waited, `data_workers` how many it has
    of its own, `data_worker_milli_cpu` what those of all members use together.
    """

    uid: str
    batches_per_second: float
    data_workers: int = 0
    data_worker_milli_cpu: float = 0.0

    def __post_init__(self) -> None:
        for name in ("batches_per_second", "data_workers", "data_worker_milli_cpu"):
            _finite(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePods:
    """The pods of one role: how many, and what each has, on average."""

    count: int
    milli_cpu: float
    memory_bytes: float
    accelerators: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a job with a budget has cost until now, and what goes into the rest.

    `prediction` is its present speed, None while that is unknown; `steps_left` is None where the
    job does not say how many steps it has. Prices are for an hour, in `currency`.
    """

    currency: str
    core_hour: float
    gib_hour: float
    accelerator_hour: float
    spent: float
    pods: Mapping[Role, RolePods]
    steps_left: int | None = None
    prediction: Prediction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that a plan may be based on: samples, plans and events oldest first, past jobs in any
    order. `now_seconds` is the time of planning, the only clock an algorithm sees. `profile` is
    what was last measured of the input of the job, or of one of its kind; None: nothing was.
    `group` are all jobs that it shares batches with, itself included; empty: it shares with none.
    `spending` is known of jobs with a budget, where there are prices.
    """

    now_seconds: float
    samples: tuple[Sample, ...] = ()
    plans: tuple[AppliedPlan, ...] = ()
    events: tuple[JobEvent, ...] = ()
    past_jobs: tuple[PastJob, ...] = ()
    profile: Profile | None = None
    group: tuple[GroupMember, ...] = ()
    spending: Spending | None = None


class Params(BaseModel):
    """Base of every algorithm's parameters: typed, immutable, and no unknown key gets in."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


P_contra = TypeVar("P_contra", bound=Params, contravariant=True)
P = TypeVar("P", bound=Params)


class PlanFunction(Protocol[P_contra]):
    """The one function that an algorithm is."""

    def __call__(
        self, history: History, job: JobDescription, limits: Limits, params: P_contra, /
    ) -> Plan | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm(Generic[P]):
    """One plugin, the value behind an entry point of group ``penstock.algorithms``.

    `plan` is pure, and is importable by its module and name, since it runs in another process. It
    answers None when nothing should change, which includes a trigger that is not its business.

    Attributes:
        borrows: other algorithms, whose parameters as they are configured it measures by. Its own
            have a field of the name of each, which is theirs to set and not its.
    """

    name: str
    version: str
    summary: str
    stages: frozenset[Stage]
    triggers: frozenset[Trigger]
    strategies: frozenset[Strategy]
    params: type[P]
    plan: PlanFunction[P]
    borrows: frozenset[str] = frozenset()


def _finite(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise PlanningError(f"{name} must be finite and not negative, got {value!r}")


def _positive(name: str, value: int | None) -> None:
    if value is not None and not 0 < value < math.inf:
        raise PlanningError(f"{name} must be above 0, got {value!r}")


def _in_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise PlanningError(f"{name} must be from {low} to {high}, got {value!r}")
