"""Jobs, from the wire and to it."""

from __future__ import annotations

from penstock.base.enums import JobPhase
from penstock.base.quantity import format_bytes, format_milli_cpu
from penstock.brain import planning
from penstock.brain.registration import Registration
from penstock.brain.store.tables import JobRow
from penstock.wire.base import byte_count, milli_cpu
from penstock.wire.jobs import Job, JobRegistration, RoleDescription, Signature


def registration(uid: str, body: JobRegistration) -> Registration:
    """What a trainer registers, as the Brain sees it."""
    return Registration(
        description=planning.JobDescription(
            uid=uid,
            name=body.name,
            namespace=body.namespace,
            strategy=body.strategy,
            optimize=body.optimize,
            signature=planning.Signature(**body.signature.model_dump()),
            roles={role: _role_spec(described) for role, described in body.roles.items()},
            slots_per_step=body.slots_per_step,
            global_batch=body.global_batch,
            total_steps=body.total_steps,
            objective=body.objective,
            deadline_seconds=body.deadline_seconds,
            budget=body.budget,
        ),
        resource_limits=dict(body.resource_limits),
    )


def job(row: JobRow) -> Job:
    """A stored job on the wire."""
    stored = Registration.parse(row.description)
    described = stored.description
    return Job(
        uid=row.uid,
        name=row.name,
        namespace=row.namespace,
        strategy=described.strategy,
        optimize=described.optimize,
        signature=Signature(
            model=row.model, dataset=row.dataset, user=row.user_name, code=row.code
        ),
        resource_limits=dict(stored.resource_limits),
        roles={role: _described(spec) for role, spec in described.roles.items()},
        slots_per_step=described.slots_per_step,
        global_batch=described.global_batch,
        total_steps=described.total_steps,
        objective=described.objective,
        deadline_seconds=described.deadline_seconds,
        budget=described.budget,
        phase=JobPhase(row.phase),
        message=row.message,
        warning=row.warning,
        registered_seconds=row.registered_seconds,
        last_seen_seconds=row.last_seen_seconds,
        finished_seconds=row.finished_seconds,
        step=row.step,
        steps_per_second=row.steps_per_second,
        world_size=row.world_size,
        current_plan=row.current_plan,
        pinned_by=row.pinned_plan,
    )


def _role_spec(described: RoleDescription) -> planning.RoleSpec:
    return planning.RoleSpec(
        minimum=described.min_replicas,
        maximum=described.max_replicas,
        fixed=described.fixed_replicas,
        milli_cpu=milli_cpu(described.cpu),
        memory_bytes=byte_count(described.memory),
        spare=described.spare_replicas,
        unit=described.unit,
    )


def _described(spec: planning.RoleSpec) -> RoleDescription:
    return RoleDescription(
        min_replicas=spec.minimum,
        max_replicas=spec.maximum,
        fixed_replicas=spec.fixed,
        spare_replicas=spec.spare,
        unit=spec.unit,
        cpu=None if spec.milli_cpu is None else format_milli_cpu(spec.milli_cpu),
        memory=None if spec.memory_bytes is None else format_bytes(spec.memory_bytes),
    )
