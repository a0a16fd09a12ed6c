"""One decision about one job: from what is observed to what is to be done.

`reconcile` is a pure function and knows nothing of what it answered before. Carried out completely,
partly or not at all, and repeated from whatever came of it, its answers lead to the same end: pods
as the target says, which is a function of the spec and the admitted Scales alone.

Where Kubernetes users have a habit it is followed: a job that another controller manages is not
touched at all; a finished job keeps its ended pods for their logs and drops the running ones; a
finished job never starts again. A running job of whose template no pod can be made goes on with the
pods it has: it is suspended, ends and is deleted like any other.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime

from penstock.base.enums import DATA_ROLES, TRAINER_ROLE, Policy, Role
from penstock.base.fields import write_time
from penstock.controller.reconcile import completion, planned_condition, pod_changes
from penstock.controller.reconcile.desired import gang, own_scales, quota, snapshots
from penstock.controller.reconcile.desired.pods import pod_name, replica_pod
from penstock.controller.reconcile.desired.ranks import RolePlanner
from penstock.controller.reconcile.desired.replacement import classify, fingerprints
from penstock.controller.reconcile.desired.targets import (
    CONSENT,
    Held,
    RankTarget,
    Target,
    compute_target,
)
from penstock.controller.reconcile.model.actions import (
    Action,
    CheckTemplate,
    RecordEvent,
    RequeueAt,
)
from penstock.controller.reconcile.model.events import of_scales
from penstock.controller.reconcile.model.objects import job_objects, object_key
from penstock.controller.reconcile.model.observed import Observed, Scale, Settings
from penstock.controller.reconcile.partition_condition import set_input_partitioned
from penstock.controller.reconcile.pass_context import NO_COUNTS, PassContext
from penstock.controller.reconcile.running_conditions import (
    set_running,
    set_scaling,
    set_storage_healthy,
)
from penstock.controller.reconcile.scales import acceptance, preview, scale_lifecycle
from penstock.controller.reconcile.scales.admission import admit, prepare
from penstock.controller.reconcile.status import plan_of
from penstock.crds.conditions import JobCondition, JobReason
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.events import EventReason


def reconcile(observed: Observed, settings: Settings, now: datetime) -> list[Action]:
    """What to do about a job.

    Args:
        observed: the job and what belongs to it.
        settings: the choices of whoever runs the controller.
        now: the present time.

    Returns:
        Actions to be carried out in this order; empty where all is as it should be.
    """
    job = observed.job
    if job.deleting or job.managed_by not in {None, settings.manager}:
        return []
    context = PassContext(observed, settings, now)
    for condition in JobCondition:
        if context.conditions.get(condition) is None:
            context.conditions.set(condition, None, JobReason.WAITING_FOR_PLAN)
    set_storage_healthy(context.conditions, job.status.problems)
    set_input_partitioned(context.conditions, job.spec, job.status.partition)
    if completion.has_ended(context):
        completion.clean_up(context)
    else:
        _go_on(context)
    context.actions.extend(own_scales.adoptions(job, observed.scales))
    if context.alarm.when is not None:
        context.actions.append(RequeueAt(context.alarm.when))
    return context.actions


def _go_on(context: PassContext) -> None:
    observed, job = context.observed, context.job
    fault = acceptance.fault_of_spec(job, context.settings)
    if fault is not None or job.spec is None:
        _not_accepted(context, fault or (JobReason.INVALID_SPEC, job.spec_error))
        return
    spec = job.spec
    context.template_faults = acceptance.faults_of_templates(spec)
    if context.template_faults:
        if job.status.start_time is None:
            _not_accepted(context, next(iter(context.template_faults.values())))
            return
        spec = acceptance.without_templates(spec, context.template_faults)
    held = _held(context)
    if context.template_faults:  # what a Scale would request is not known: it is decided later
        scales = sorted(observed.scales, key=lambda one: one.order)
    else:
        scales = admit(job, spec, observed.scales, held, context.now)
    scales, alarm = prepare(spec, scales, held, context.now)
    context.alarm.at(alarm)
    target = compute_target(spec, scales, held)
    derived = acceptance.fault_of_derived(spec, target)
    if derived is not None:
        context.template_faults.setdefault(Role.ACCELERATED_DATA_WORKER, derived)
    scales = preview.fill_in(spec, scales, held, target)
    observed = context.observed = dataclasses.replace(observed, scales=tuple(scales))
    asked_for = compute_target(spec, scales) if held else target
    context.beyond_limits = acceptance.fault_of_target(spec, asked_for)
    if context.beyond_limits is not None and not _goes_on(context, spec, target, held):
        _beyond_limits(context, spec, target, context.beyond_limits)
        return
    if job.status.start_time is None:
        context.additions["startTime"] = write_time(context.now)
    started = planned_condition.set_planned(context, spec, scales)
    _plan_roles(context, spec, target, started=started)
    checks = _checks(context, spec)
    if checks:
        context.actions.extend(checks)
        context.alarm.at(context.now)
        return
    _set_accepted(context, spec)
    if completion.fails(context, spec) or completion.succeeds(context, spec, target):
        return
    _act(context, spec, scales, target, held, started=started)


def _checks(context: PassContext, spec: ElasticJobSpec) -> list[CheckTemplate]:
    """Templates that nobody has tried and that no pod is made of now.

    Without this a fault in a template would show when the plan has come or the job has grown.
    """
    return [
        CheckTemplate(
            role.value,
            declared.template,
            replica_pod(context.job, spec, role, 0, 0, RankTarget()),
        )
        for role, declared in spec.replica_specs.by_role().items()
        if not context.plans[role].create
        and role not in context.template_faults
        and context.observed.known_templates.get(role) != declared.template
    ]


def _set_accepted(context: PassContext, spec: ElasticJobSpec) -> None:
    """Accepted, unless the API server refuses something that is still to be created.

    A job that goes on may ask for more than its limits: that is told, and has no effect.
    """
    wanted = {
        pod_name(context.job, role, rank, incarnation)
        for role, plan in context.plans.items()
        for rank, incarnation in plan.create
    }
    wanted |= {acceptance.template_path(role) for role in spec.replica_specs.by_role()}
    if pod_changes.needs_objects(context):
        wanted |= {object_key(one.manifest) for one in job_objects(context.job)}
    context.refusals = {
        name: refusal for name, refusal in context.observed.refusals.items() if name in wanted
    }
    faults = [
        *context.template_faults.values(),
        context.beyond_limits,
        acceptance.fault_of_objects(context.refusals),
    ]
    fault = next((one for one in faults if one is not None), None)
    if fault is not None:
        context.conditions.set(JobCondition.ACCEPTED, False, *fault)
    else:
        text = gang.missing(spec, context.settings, context.observed.gang_refusal)
        reason = JobReason.GANG_UNAVAILABLE if text else JobReason.ACCEPTED
        fewer = snapshots.missing(spec, quota.snapshot_copies(spec))
        if fewer:
            reason = reason if text else JobReason.SNAPSHOTS_REDUCED
            text = f"{text}; {fewer}" if text else fewer
        context.conditions.set(JobCondition.ACCEPTED, True, reason, text)


def _held(context: PassContext) -> Held:
    """Counts in force of the roles that need consent, where they have had pods."""
    counts = context.job.status.counts
    return Held(
        {role: counts[role].desired for role in CONSENT if counts.get(role, NO_COUNTS).desired > 0},
        context.job.generation,
    )


def _not_accepted(context: PassContext, fault: acceptance.Fault) -> None:
    """Say so and leave everything as it is, until the spec changes."""
    context.conditions.set(JobCondition.ACCEPTED, False, *fault)
    for kind in (JobCondition.RUNNING, JobCondition.SCALING):
        if context.conditions.get(kind) == context.job.status.conditions.get(kind):
            continue
        context.conditions.set(kind, False, fault[0], fault[1])
    context.not_finished()
    if context.conditions.get(JobCondition.SUSPENDED) != context.job.status.conditions.get(
        JobCondition.SUSPENDED
    ):
        context.conditions.set(JobCondition.SUSPENDED, False, JobReason.NOT_SUSPENDED)
    context.write_status(frozenset(), urgent=True)


def _goes_on(context: PassContext, spec: ElasticJobSpec, target: Target, held: Held) -> bool:
    """Whether a job that asks for more than its limits has a target all the same.

    One that is to be suspended has; and one whose counts in force are within the limits, since the
    edit that is not takes effect by consent alone: it waits, and what dies meanwhile is replaced.
    """
    if context.job.status.start_time is None:
        return False
    return spec.suspend or (bool(held) and acceptance.fault_of_target(spec, target) is None)


def _beyond_limits(
    context: PassContext, spec: ElasticJobSpec, target: Target, fault: acceptance.Fault
) -> None:
    """Change no pod, since half of a target is no target; but a job that runs may still end."""
    if context.job.status.start_time is not None:
        _plan_roles(context, spec, target, started=True)
        if completion.fails(context, spec) or completion.succeeds(context, spec, target):
            return
        context.plans.clear()
    _not_accepted(context, fault)


def _plan_roles(
    context: PassContext, spec: ElasticJobSpec, target: Target, *, started: bool
) -> None:
    seen = fingerprints(context.observed.pods)
    for role in (TRAINER_ROLE, *Role):
        wanted = not spec.suspend and (started or role == TRAINER_ROLE)
        planner = RolePlanner(
            context.observed, spec, role, target, seen, context.alarm, context.now
        )
        plan = context.plans[role] = planner.plan(wanted=wanted)
        if role in context.template_faults:  # reserved, for when a pod can be made
            plan.spared.extend(plan.create)
            plan.create.clear()
    context.keep_desired = spec.suspend or not started


def _act(
    context: PassContext,
    spec: ElasticJobSpec,
    scales: list[Scale],
    target: Target,
    held: Held,
    *,
    started: bool,
) -> None:
    context.not_finished()
    _set_progress(context, spec, scales, target, started=started)
    scales = scale_lifecycle.settle(
        scales,
        target,
        lambda role: started and context.plans[role].settled,
        suspended=spec.suspend,
        now=context.now,
    )
    plan = scale_lifecycle.plan_in_force(scales, target, (context.plan or {}).get("name"))
    context.plan = None if plan is None else plan_of(plan)
    context.actions.extend(scale_lifecycle.status_patches(context.scales_as_written, scales))
    context.actions.extend(of_scales(context.scales_as_written, scales))
    _write_own_scales(context, spec, scales, target, held)
    reserves = frozenset[tuple[str, int, int]]().union(
        *(plan.reserves for plan in context.plans.values())
    )
    context.write_status(reserves, urgent=False)
    pod_changes.change_pods(context, spec, target)
    context.expire_scales(scales)


def _set_progress(
    context: PassContext,
    spec: ElasticJobSpec,
    scales: list[Scale],
    target: Target,
    *,
    started: bool,
) -> None:
    conditions = context.conditions
    if spec.suspend:
        here = [pod for pod in context.observed.pods if not pod.ended]
        for kind in (JobCondition.RUNNING, JobCondition.SCALING):
            conditions.set(kind, False, JobReason.SUSPENDED)
        if here:
            text = f"{len(here)} pods are draining"
            conditions.set(JobCondition.SUSPENDED, False, JobReason.DRAINING, text)
        else:
            conditions.set(JobCondition.SUSPENDED, True, JobReason.SUSPENDED)
        return
    if context.job.status.is_true(JobCondition.SUSPENDED):
        context.additions["suspendedSeconds"] = context.suspended_seconds()
    conditions.set(JobCondition.SUSPENDED, False, JobReason.NOT_SUSPENDED)
    if not started:
        text = "waits for the first plan"
        conditions.set(JobCondition.RUNNING, False, JobReason.WAITING_FOR_PLAN, text)
        set_scaling(conditions, spec, target, context.plans, context.refusals)
        return
    local = own_scales.input_runs_locally(scales, target)
    problems = context.job.status.problems
    set_running(conditions, spec, target, context.plans, problems=problems, input_is_local=local)
    set_scaling(conditions, spec, target, context.plans, context.refusals)


def _write_own_scales(
    context: PassContext,
    spec: ElasticJobSpec,
    scales: list[Scale],
    target: Target,
    held: Held,
) -> None:
    written = [scale for plan in context.plans.values() for scale in plan.scales]
    if context.beyond_limits is None:  # else such an edit is not prepared
        edit, due = own_scales.spec_edit(context.job, spec, scales, held, context.now)
        context.alarm.at(due)
        if edit is not None:
            written.append(edit)
    pinned = {
        key
        for one in scales
        if one.policy is Policy.PIN and not one.dry_run
        for key in one.fields
        if target.origins.get(key) == one.name
    }
    for role in DATA_ROLES:
        failures = [
            (classify(pod).at or pod.created, pod)
            for pod in context.observed.pods
            if pod.role == role and pod.ended and pod.phase == "Failed"
        ]
        local = own_scales.run_input_locally(
            context.job, role, failures, target, scales, pinned, context.now
        )
        if local is not None:
            written.append(local)
    for scale in written:
        spec_of_scale = scale.manifest["spec"]
        text = f"{spec_of_scale['reason']}: {spec_of_scale['message']}"
        context.actions += [scale, RecordEvent(EventReason.SCALE_WRITTEN, text[:1024])]
