"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "algorithms",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("changed_seconds", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_algorithms")),
    )
    op.create_table(
        "allocations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
        sa.UniqueConstraint("key", name=op.f("uq_allocations_key")),
    )
    with op.batch_alter_table("allocations") as batch_op:
        batch_op.create_index(
            batch_op.f("ix_allocations_time_seconds"), ["time_seconds"], unique=False
        )

    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("time_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("actor", sa.String(253), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("job_uid", sa.String(64), nullable=True),
        sa.Column("subject", sa.String(253), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("audit") as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_time_seconds"), ["time_seconds"], unique=False)

    op.create_table(
        "idempotency",
        sa.Column("scope", sa.String(400), nullable=False),
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("plan", sa.Integer(), nullable=False),
        sa.Column("created_seconds", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_idempotency")),
    )
    with op.batch_alter_table("idempotency") as batch_op:
        batch_op.create_index(
            batch_op.f("ix_idempotency_created_seconds"), ["created_seconds"], unique=False
        )

    op.create_table(
        "jobs",
        sa.Column("uid", sa.String(64), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("namespace", sa.String(253), nullable=False),
        sa.Column("strategy", sa.String(32), nullable=False),
        sa.Column("optimize", sa.String(32), nullable=False),
        sa.Column("model", sa.String(253), nullable=False),
        sa.Column("dataset", sa.String(253), nullable=False),
        sa.Column("user_name", sa.String(253), nullable=False),
        sa.Column("code", sa.String(253), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("message", sa.String(1024), nullable=False),
        sa.Column("registered_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("last_seen_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("finished_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("steps_per_second", sa.Float(precision=53), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("sampled_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("samples_dropped", sa.BigInteger(), nullable=False),
        sa.Column("symptoms", sa.String(253), nullable=False),
        sa.Column("out_of_memory_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("plan_count", sa.Integer(), nullable=False),
        sa.Column("current_plan", sa.Integer(), nullable=True),
        sa.Column("pinned_plan", sa.Integer(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "phase IN ('Active', 'Lost', 'Succeeded', 'Failed')", name=op.f("ck_jobs_phase")
        ),
        sa.CheckConstraint("plan_count >= 0 AND revision >= 0", name=op.f("ck_jobs_counters")),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.create_index(
            batch_op.f("ix_jobs_dataset_finished_seconds"),
            ["dataset", "finished_seconds"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_model_finished_seconds"),
            ["model", "finished_seconds"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_namespace_registered_seconds"),
            ["namespace", "registered_seconds"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_phase_last_seen_seconds"),
            ["phase", "last_seen_seconds"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_registered_seconds_uid"),
            ["registered_seconds", "uid"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_user_name_finished_seconds"),
            ["user_name", "finished_seconds"],
            unique=False,
        )

    op.create_table(
        "snapshots",
        sa.Column("resolution_seconds", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("time_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("sent_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("stranded_gpus", sa.Float(precision=53), nullable=False),
        sa.Column("stranded_cpu_cores", sa.Float(precision=53), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "resolution_seconds IN (0, 60, 600)", name=op.f("ck_snapshots_resolution")
        ),
        sa.PrimaryKeyConstraint("resolution_seconds", "time_seconds", name=op.f("pk_snapshots")),
    )
    op.create_table(
        "events",
        sa.Column("job_uid", sa.String(64), nullable=False),
        sa.Column("time_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("at_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("memory_limit_bytes", sa.BigInteger(), nullable=True),
        sa.Column("node", sa.String(253), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_uid"], ["jobs.uid"], name=op.f("fk_events_job_uid_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(
            "job_uid", "time_seconds", "kind", "role", "rank", name=op.f("pk_events")
        ),
    )
    op.create_table(
        "leases",
        sa.Column("job_uid", sa.String(64), nullable=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("expires_seconds", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_uid"], ["jobs.uid"], name=op.f("fk_leases_job_uid_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_uid", name=op.f("pk_leases")),
    )
    with op.batch_alter_table("leases") as batch_op:
        batch_op.create_index(batch_op.f("ix_leases_holder"), ["holder"], unique=False)

    op.create_table(
        "ledgers",
        sa.Column("job_uid", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("stored_seconds", sa.Float(precision=53), nullable=False),
        sa.CheckConstraint("sequence >= 0", name=op.f("ck_ledgers_sequence")),
        sa.ForeignKeyConstraint(
            ["job_uid"], ["jobs.uid"], name=op.f("fk_ledgers_job_uid_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_uid", name=op.f("pk_ledgers")),
    )
    op.create_table(
        "plans",
        sa.Column("job_uid", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("created_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("policy", sa.String(16), nullable=False),
        sa.Column("stage", sa.String(16), nullable=True),
        sa.Column("trigger", sa.String(32), nullable=True),
        sa.Column("algorithm", sa.String(63), nullable=True),
        sa.Column("algorithm_version", sa.String(63), nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.Column("message", sa.String(1024), nullable=False),
        sa.Column("author", sa.String(253), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("scale", sa.String(253), nullable=True),
        sa.Column("scale_written", sa.Boolean(), nullable=False),
        sa.Column("settled_seconds", sa.Float(precision=53), nullable=True),
        sa.CheckConstraint("number >= 1", name=op.f("ck_plans_number")),
        sa.ForeignKeyConstraint(
            ["job_uid"], ["jobs.uid"], name=op.f("fk_plans_job_uid_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_uid", "number", name=op.f("pk_plans")),
    )
    op.create_table(
        "rollups",
        sa.Column("job_uid", sa.String(64), nullable=False),
        sa.Column("resolution_seconds", sa.Integer(), nullable=False),
        sa.Column("start_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("received_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("steps_per_second", sa.Float(precision=53), nullable=False),
        sa.Column("samples_per_second", sa.Float(precision=53), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.CheckConstraint("resolution_seconds IN (60, 600)", name=op.f("ck_rollups_resolution")),
        sa.ForeignKeyConstraint(
            ["job_uid"], ["jobs.uid"], name=op.f("fk_rollups_job_uid_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(
            "job_uid", "resolution_seconds", "start_seconds", name=op.f("pk_rollups")
        ),
    )
    with op.batch_alter_table("rollups") as batch_op:
        batch_op.create_index(
            batch_op.f("ix_rollups_resolution_seconds_start_seconds"),
            ["resolution_seconds", "start_seconds"],
            unique=False,
        )

    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_uid", sa.String(64), nullable=False),
        sa.Column("time_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("trigger", sa.String(32), nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("algorithm", sa.String(63), nullable=False),
        sa.Column("algorithm_version", sa.String(63), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("detail", sa.String(1024), nullable=False),
        sa.Column("duration_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("plan", sa.Integer(), nullable=True),
        sa.Column("content", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_uid"], ["jobs.uid"], name=op.f("fk_runs_job_uid_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    with op.batch_alter_table("runs") as batch_op:
        batch_op.create_index(
            batch_op.f("ix_runs_job_uid_time_seconds"), ["job_uid", "time_seconds"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_runs_time_seconds"), ["time_seconds"], unique=False)

    op.create_table(
        "samples",
        sa.Column("job_uid", sa.String(64), nullable=False),
        sa.Column("time_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("at_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("received_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("interval_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("steps_per_second", sa.Float(precision=53), nullable=False),
        sa.Column("samples_per_second", sa.Float(precision=53), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("servers", sa.Integer(), nullable=False),
        sa.Column("enqueued_per_second", sa.Float(precision=53), nullable=True),
        sa.Column("dequeued_per_second", sa.Float(precision=53), nullable=True),
        sa.Column("ideal_per_second", sa.Float(precision=53), nullable=True),
        sa.Column("ranks", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_uid"], ["jobs.uid"], name=op.f("fk_samples_job_uid_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_uid", "time_seconds", name=op.f("pk_samples")),
    )
    with op.batch_alter_table("samples") as batch_op:
        batch_op.create_index(
            batch_op.f("ix_samples_job_uid_at_seconds"), ["job_uid", "at_seconds"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_samples_received_seconds"), ["received_seconds"], unique=False
        )

    op.create_table(
        "usages",
        sa.Column("job_uid", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("milli_cpu", sa.Float(precision=53), nullable=False),
        sa.Column("hottest_milli_cpu", sa.Float(precision=53), nullable=False),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("total_memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("steps_per_second", sa.Float(precision=53), nullable=False),
        sa.Column("out_of_memory", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_uid"], ["jobs.uid"], name=op.f("fk_usages_job_uid_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_uid", "role", name=op.f("pk_usages")),
    )


def downgrade() -> None:
    op.drop_table("usages")
    with op.batch_alter_table("samples") as batch_op:
        batch_op.drop_index(batch_op.f("ix_samples_received_seconds"))
        batch_op.drop_index(batch_op.f("ix_samples_job_uid_at_seconds"))

    op.drop_table("samples")
    with op.batch_alter_table("runs") as batch_op:
        batch_op.drop_index(batch_op.f("ix_runs_time_seconds"))
        batch_op.drop_index(batch_op.f("ix_runs_job_uid_time_seconds"))

    op.drop_table("runs")
    with op.batch_alter_table("rollups") as batch_op:
        batch_op.drop_index(batch_op.f("ix_rollups_resolution_seconds_start_seconds"))

    op.drop_table("rollups")
    op.drop_table("plans")
    op.drop_table("ledgers")
    with op.batch_alter_table("leases") as batch_op:
        batch_op.drop_index(batch_op.f("ix_leases_holder"))

    op.drop_table("leases")
    op.drop_table("events")
    op.drop_table("snapshots")
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_user_name_finished_seconds"))
        batch_op.drop_index(batch_op.f("ix_jobs_registered_seconds_uid"))
        batch_op.drop_index(batch_op.f("ix_jobs_phase_last_seen_seconds"))
        batch_op.drop_index(batch_op.f("ix_jobs_namespace_registered_seconds"))
        batch_op.drop_index(batch_op.f("ix_jobs_model_finished_seconds"))
        batch_op.drop_index(batch_op.f("ix_jobs_dataset_finished_seconds"))

    op.drop_table("jobs")
    with op.batch_alter_table("idempotency") as batch_op:
        batch_op.drop_index(batch_op.f("ix_idempotency_created_seconds"))

    op.drop_table("idempotency")
    with op.batch_alter_table("audit") as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_time_seconds"))

    op.drop_table("audit")
    with op.batch_alter_table("allocations") as batch_op:
        batch_op.drop_index(batch_op.f("ix_allocations_time_seconds"))

    op.drop_table("allocations")
    op.drop_table("algorithms")
