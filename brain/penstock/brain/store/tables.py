"""The tables, for SQLite and PostgreSQL alike; `migrations` has the history of their shape.

Writers never read, change and write back a value: counters grow in the statement that uses them,
samples and plans are only ever added, and what a person changes leaves a row in `audit`. Table
models do not validate (SQLModel), so the constraints that must hold are in the database. Every
constraint has a name, or SQLite could not migrate it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlmodel import Field, SQLModel

METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


_SERIAL: Final = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows of its own accord only where the type is spelt INTEGER."""


class Table(SQLModel):
    """Base of every table."""

    metadata: ClassVar[MetaData] = METADATA


def _of_a_job() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["job_uid"], ["jobs.uid"], ondelete="CASCADE")


def _seconds(**options: Any) -> Any:
    return Field(sa_type=Float(53), **options)


class JobRow(Table, table=True):
    """One job. `description` is what was registered; it is only ever replaced as a whole."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint("phase IN ('Active', 'Lost', 'Succeeded', 'Failed')", name="phase"),
        CheckConstraint("plan_count >= 0 AND revision >= 0", name="counters"),
        Index(None, "registered_seconds", "uid"),
        Index(None, "phase", "last_seen_seconds"),
        Index(None, "namespace", "registered_seconds"),
        Index(None, "dataset", "finished_seconds"),
        Index(None, "model", "finished_seconds"),
        Index(None, "user_name", "finished_seconds"),
    )

    uid: str = Field(primary_key=True, max_length=64)
    name: str = Field(max_length=253)
    namespace: str = Field(max_length=253)
    strategy: str = Field(max_length=32)
    optimize: str = Field(max_length=32)
    model: str = Field(default="", max_length=253)
    dataset: str = Field(default="", max_length=253)
    user_name: str = Field(default="", max_length=253)
    code: str = Field(default="", max_length=253)
    description: str = Field(sa_type=Text)
    phase: str = Field(default="Active", max_length=16)
    message: str = Field(default="", max_length=1024)
    warning: str = Field(default="", max_length=1024, sa_column_kwargs={"server_default": ""})
    registered_seconds: float = _seconds()
    last_seen_seconds: float = _seconds()
    finished_seconds: float | None = _seconds(default=None, nullable=True)
    step: int = Field(default=0, sa_type=BigInteger)
    steps_per_second: float = Field(default=0.0, sa_type=Float(53))
    world_size: int = 0
    sampled_seconds: float | None = _seconds(default=None, nullable=True)
    samples_dropped: int = Field(default=0, sa_type=BigInteger)
    symptoms: str = Field(default="", max_length=253)
    out_of_memory_seconds: float | None = _seconds(default=None, nullable=True)
    plan_count: int = 0
    current_plan: int | None = None
    pinned_plan: int | None = None
    revision: int = 0


class SampleRow(Table, table=True):
    """One sample. `time_seconds` is the trainer's clock and the key; `at_seconds` is the same
    moment by the server's, where the two are known to differ; `ranks` is packed (`packing`),
    `share` JSON of `ShareFigures`, `stages` of several `StageFigures`."""

    __tablename__ = "samples"
    __table_args__ = (
        _of_a_job(),
        Index(None, "job_uid", "at_seconds"),
        Index(None, "received_seconds"),
    )

    job_uid: str = Field(primary_key=True, max_length=64)
    time_seconds: float = _seconds(primary_key=True)
    at_seconds: float = _seconds()
    received_seconds: float = _seconds()
    interval_seconds: float = Field(sa_type=Float(53))
    step: int = Field(sa_type=BigInteger)
    epoch: int = Field(sa_type=BigInteger)
    steps_per_second: float = Field(sa_type=Float(53))
    samples_per_second: float = Field(sa_type=Float(53))
    world_size: int
    servers: int
    enqueued_per_second: float | None = Field(default=None, sa_type=Float(53))
    dequeued_per_second: float | None = Field(default=None, sa_type=Float(53))
    ideal_per_second: float | None = Field(default=None, sa_type=Float(53))
    received_bytes_per_second: float | None = Field(default=None, sa_type=Float(53))
    ranks: bytes = Field(sa_type=LargeBinary)
    share: str | None = Field(default=None, sa_type=Text, nullable=True)
    stages: str | None = Field(default=None, sa_type=Text, nullable=True)


class RollupRow(Table, table=True):
    """Samples of one interval, summed up; `roles` is JSON of `RoleUse` by role, `gpus` of `GpuUse`
    where any was measured, and `spent` of `Spent`; `peak_step` is the highest step until then."""

    __tablename__ = "rollups"
    __table_args__ = (
        _of_a_job(),
        CheckConstraint("resolution_seconds IN (60, 600)", name="resolution"),
        Index(None, "resolution_seconds", "start_seconds"),
    )

    job_uid: str = Field(primary_key=True, max_length=64)
    resolution_seconds: int = Field(primary_key=True)
    start_seconds: float = _seconds(primary_key=True)
    received_seconds: float = _seconds()
    samples: int
    step: int = Field(sa_type=BigInteger)
    epoch: int = Field(sa_type=BigInteger)
    steps_per_second: float = Field(sa_type=Float(53))
    samples_per_second: float = Field(sa_type=Float(53))
    world_size: int
    roles: str = Field(sa_type=Text)
    gpus: str | None = Field(default=None, sa_type=Text, nullable=True)
    spent: str | None = Field(default=None, sa_type=Text, nullable=True)
    peak_step: int | None = Field(default=None, sa_type=BigInteger, nullable=True)


class EventRow(Table, table=True):
    """Something that happened to one pod of a job."""

    __tablename__ = "events"
    __table_args__ = (_of_a_job(),)

    job_uid: str = Field(primary_key=True, max_length=64)
    time_seconds: float = _seconds(primary_key=True)
    kind: str = Field(primary_key=True, max_length=32)
    role: str = Field(primary_key=True, max_length=16)
    rank: int = Field(primary_key=True)
    at_seconds: float = _seconds()
    memory_limit_bytes: int | None = Field(default=None, sa_type=BigInteger)
    node: str = Field(default="", max_length=253)


class PlanRow(Table, table=True):
    """One plan or override. `content` is JSON and never changes; what does (`scale`,
    `scale_written`, `settled_seconds`) is each written once."""

    __tablename__ = "plans"
    __table_args__ = (_of_a_job(), CheckConstraint("number >= 1", name="number"))

    job_uid: str = Field(primary_key=True, max_length=64)
    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    created_seconds: float = _seconds()
    source: str = Field(max_length=16)
    policy: str = Field(max_length=16)
    stage: str | None = Field(default=None, max_length=16)
    trigger: str | None = Field(default=None, max_length=32)
    algorithm: str | None = Field(default=None, max_length=63)
    algorithm_version: str = Field(default="", max_length=63)
    reason: str = Field(max_length=64)
    message: str = Field(max_length=1024)
    author: str = Field(default="", max_length=253)
    held: bool = False
    content: str = Field(sa_type=Text)
    scale: str | None = Field(default=None, max_length=253)
    scale_written: bool = False
    settled_seconds: float | None = _seconds(default=None, nullable=True)


class RunRow(Table, table=True):
    """One algorithm that was asked and had something to say, or failed."""

    __tablename__ = "runs"
    __table_args__ = (
        _of_a_job(),
        Index(None, "job_uid", "time_seconds"),
        Index(None, "time_seconds"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_SERIAL)
    job_uid: str = Field(max_length=64)
    time_seconds: float = _seconds()
    trigger: str = Field(max_length=32)
    stage: str = Field(max_length=16)
    algorithm: str = Field(max_length=63)
    algorithm_version: str = Field(default="", max_length=63)
    shadow: bool = False
    outcome: str = Field(max_length=16)
    detail: str = Field(default="", max_length=1024)
    duration_seconds: float = Field(sa_type=Float(53))
    plan: int | None = None
    content: str | None = Field(default=None, sa_type=Text)


class LedgerRow(Table, table=True):
    """The newest ledger of a job's trainer."""

    __tablename__ = "ledgers"
    __table_args__ = (_of_a_job(), CheckConstraint("sequence >= 0", name="sequence"))

    job_uid: str = Field(primary_key=True, max_length=64)
    sequence: int = Field(sa_type=BigInteger)
    content: bytes = Field(sa_type=LargeBinary)
    stored_seconds: float = _seconds()


class UsageRow(Table, table=True):
    """What one role of a finished job used: what later jobs are planned from."""

    __tablename__ = "usages"
    __table_args__ = (_of_a_job(),)

    job_uid: str = Field(primary_key=True, max_length=64)
    role: str = Field(primary_key=True, max_length=16)
    replicas: int
    milli_cpu: float = Field(sa_type=Float(53))
    hottest_milli_cpu: float = Field(sa_type=Float(53))
    peak_memory_bytes: int = Field(sa_type=BigInteger)
    total_memory_bytes: int = Field(sa_type=BigInteger)
    steps_per_second: float = Field(sa_type=Float(53))
    out_of_memory: bool = False


class AuditRow(Table, table=True):
    """One change that a person made."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "time_seconds"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=_SERIAL)
    time_seconds: float = _seconds()
    actor: str = Field(max_length=253)
    action: str = Field(max_length=64)
    job_uid: str | None = Field(default=None, max_length=64)
    subject: str = Field(default="", max_length=253)
    detail: str = Field(default="{}", sa_type=Text)


class IdempotencyRow(Table, table=True):
    """What was answered to a request that carried an idempotency key."""

    __tablename__ = "idempotency"
    __table_args__ = (Index(None, "created_seconds"),)

    scope: str = Field(primary_key=True, max_length=400)
    key: str = Field(primary_key=True, max_length=128)
    digest: str = Field(max_length=64)
    plan: int
    created_seconds: float = _seconds()


class AlgorithmRow(Table, table=True):
    """Settings of an algorithm that were changed while the Brain ran."""

    __tablename__ = "algorithms"

    name: str = Field(primary_key=True, max_length=63)
    settings: str = Field(sa_type=Text)
    changed_seconds: float = _seconds()


class LeaseRow(Table, table=True):
    """Which of several Brains administers a job, and until when."""

    __tablename__ = "leases"
    __table_args__ = (_of_a_job(), Index(None, "holder"))

    job_uid: str = Field(primary_key=True, max_length=64)
    holder: str = Field(max_length=64)
    expires_seconds: float = _seconds()


class ReplicaRow(Table, table=True):
    """One of several Brains, and until when it is known to live."""

    __tablename__ = "replicas"

    name: str = Field(primary_key=True, max_length=64)
    expires_seconds: float = _seconds()


class SnapshotRow(Table, table=True):
    """The cluster as the scheduler sent it: the newest (resolution 0), and one for each minute
    and each ten minutes. `content` is JSON, compressed."""

    __tablename__ = "snapshots"
    __table_args__ = (CheckConstraint("resolution_seconds IN (0, 60, 600)", name="resolution"),)

    resolution_seconds: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    time_seconds: float = _seconds(primary_key=True)
    sent_seconds: float = _seconds()
    stranded_gpus: float = Field(sa_type=Float(53))
    stranded_cpu_cores: float = Field(sa_type=Float(53))
    content: bytes = Field(sa_type=LargeBinary)


class WorkloadRow(Table, table=True):
    """The pods of the cluster and their nodes as the scheduler sent them last: one row. `content`
    is JSON, compressed."""

    __tablename__ = "workloads"

    id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    sent_seconds: float = _seconds()
    content: bytes = Field(sa_type=LargeBinary)


class CapacityRow(Table, table=True):
    """What the nodes of the cluster had in one minute, by what the scheduler said: amounts times
    seconds. `covered_seconds` of the minute are known; `free` includes what is stranded."""

    __tablename__ = "capacities"

    start_seconds: float = _seconds(primary_key=True)
    covered_seconds: float = Field(sa_type=Float(53))
    node_seconds: float = Field(sa_type=Float(53))
    core_seconds: float = Field(sa_type=Float(53))
    free_core_seconds: float = Field(sa_type=Float(53))
    stranded_core_seconds: float = Field(sa_type=Float(53))
    gib_seconds: float = Field(sa_type=Float(53))
    free_gib_seconds: float = Field(sa_type=Float(53))
    accelerator_seconds: float = Field(sa_type=Float(53))
    free_accelerator_seconds: float = Field(sa_type=Float(53))
    stranded_accelerator_seconds: float = Field(sa_type=Float(53))


class AllocationRow(Table, table=True):
    """One decision of the scheduler; `content` is JSON."""

    __tablename__ = "allocations"
    __table_args__ = (Index(None, "time_seconds"), Index(None, "job_uid"))

    id: int | None = Field(default=None, primary_key=True, sa_type=_SERIAL)
    time_seconds: float = _seconds()
    key: str = Field(max_length=128, unique=True)
    content: str = Field(sa_type=Text)
    job_uid: str | None = Field(default=None, max_length=64, nullable=True)


class ProfileRow(Table, table=True):
    """What was measured of a job's input; `content` is JSON (`penstock.throughput.profiles`).

    One of each source for a job. It stays when the job is forgotten: `signature` says which jobs
    are of its kind, `uses` how many were planned with it, `last_error` how far it was off then.
    """

    __tablename__ = "profiles"
    __table_args__ = (
        UniqueConstraint("job_uid", "source"),
        Index(None, "pipeline"),
        Index(None, "model"),
        Index(None, "signature"),
        Index(None, "measured_seconds"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_SERIAL)
    job_uid: str = Field(max_length=64)
    source: str = Field(max_length=16)
    program: str = Field(default="", max_length=253)
    pipeline: str = Field(default="", max_length=128)
    model: str = Field(default="", max_length=128)
    machine: str = Field(default="", max_length=128)
    signature: str = Field(default="", max_length=64)
    content: str = Field(sa_type=Text)
    measured_seconds: float = _seconds()
    uses: int = 0
    last_error: float | None = Field(default=None, sa_type=Float(53), nullable=True)


class NodeRow(Table, table=True):
    """What is known of one node: the newest check (`verdict` to `job_uid`), until when it has it
    avoided, and a person's word (`override`: Avoid or Clear), which counts more until it ends."""

    __tablename__ = "nodes"
    __table_args__ = (
        CheckConstraint("override IN ('', 'Avoid', 'Clear')", name="override"),
        Index(None, "changed_seconds"),
    )

    name: str = Field(primary_key=True, max_length=253)
    hardware: str = Field(default="", max_length=128)
    verdict: str = Field(default="", max_length=16)
    what: str = Field(default="", max_length=16)
    ratio: float = Field(default=1.0, sa_type=Float(53))
    times: int = 0
    compute: float | None = Field(default=None, sa_type=Float(53))
    memory: float | None = Field(default=None, sa_type=Float(53))
    link: float | None = Field(default=None, sa_type=Float(53))
    measured_seconds: float | None = _seconds(default=None, nullable=True)
    job_uid: str = Field(default="", max_length=64)
    avoid_until_seconds: float | None = _seconds(default=None, nullable=True)
    override: str = Field(default="", max_length=16)
    override_until_seconds: float | None = _seconds(default=None, nullable=True)
    override_by: str = Field(default="", max_length=253)
    override_why: str = Field(default="", max_length=1024)
    changed_seconds: float = _seconds()
