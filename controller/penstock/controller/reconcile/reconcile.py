"""One decision about one job: from what is observed to what is to be done.

`reconcile` is a pure function and knows nothing of what it answered before. Carried out completely,
partly or not at all, and repeated from whatever came of it, its answers lead to the same end: pods
as the target says, which is a function of the spec and the admitted Scales alone.

Where Kubernetes users have a habit it is followed: a job that another controller manages is not
touched at all; a finished job keeps its ended pods for their logs and drops the running ones; a
finished job never starts again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.controller.reconcile import acceptance, history, own_scales, preview, timing
from penstock.controller.reconcile.actions import (
    Action,
    Alarm,
    CreatePod,
    DeleteJob,
    DeletePod,
    FetchLog,
    LiftGate,
    PatchJobStatus,
    RecordEvent,
    RequeueAt,
)
from penstock.controller.reconcile.admission import admit, is_decided, prepare, refuse
from penstock.controller.reconcile.conditions import Conditions
from penstock.controller.reconcile.events import of_scales, transitions
from penstock.controller.reconcile.objects import job_objects, object_key
from penstock.controller.reconcile.observed import (
    Observed,
    Pod,
    Refusal,
    RoleCounts,
    Scale,
    Settings,
)
from penstock.controller.reconcile.pods import pod_name, replica_pod, trainer_pod
from penstock.controller.reconcile.ranks import Failure, RolePlan, RolePlanner
from penstock.controller.reconcile.reading import write_time
from penstock.controller.reconcile.replacement import Cause, classify, fingerprints
from penstock.controller.reconcile.status import build_status, merge_patch
from penstock.controller.reconcile.targets import CONSENT, Held, Target, compute_target
from penstock.controller.reconcile.verdict import set_running, set_scaling
from penstock.crds.conditions import JobCondition, JobReason, ScaleCondition, ScaleReason
from penstock.crds.elasticjob import ElasticJobSpec
from penstock.crds.enums import TRAINER_ROLE, Optimize, Policy, Role, Source
from penstock.crds.events import EventReason

_REMOVAL_STAGES: Final = (
    (Role.WORKER, Role.DATA_WORKER, Role.EVALUATOR),
    (Role.PS,),
    (TRAINER_ROLE,),
)
"""The order in which a whole job's pods go: the trainer last, so that it takes back the work."""


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
    return _Pass(observed, settings, now).run()


class _Pass:
    """The working state of one call of `reconcile`."""

    def __init__(self, observed: Observed, settings: Settings, now: datetime) -> None:
        self.observed = observed
        self.settings = settings
        self.now = now
        self.job = observed.job
        self.alarm = Alarm()
        self.conditions = Conditions(self.job.status.conditions, self.job.generation, now)
        self.plans: dict[str, RolePlan] = {}
        self.additions: dict[str, Any] = {}
        self.applied: Scale | None = None
        self.keep_desired = True
        self.actions: list[Action] = []
        self.refusals: Mapping[str, Refusal] = {}
        self._scales_as_written = observed.scales

    def run(self) -> list[Action]:
        for condition in JobCondition:
            if self.conditions.get(condition) is None:
                self.conditions.set(condition, None, JobReason.WAITING_FOR_PLAN)
        finished = self.conditions.is_true(JobCondition.SUCCEEDED) or self.conditions.is_true(
            JobCondition.FAILED
        )
        if finished:
            self._clean_up()
        else:
            self._work()
        if self.alarm.when is not None:
            self.actions.append(RequeueAt(self.alarm.when))
        return self.actions

    # A finished job

    def _clean_up(self) -> None:
        scales = [
            scale
            if is_decided(scale)
            else refuse(scale, ScaleReason.JOB_FINISHED, "the job has ended", self.now)
            for scale in self.observed.scales
        ]
        self._count_all()
        self._write_status(frozenset(), urgent=False)
        self.actions.extend(history.status_patches(self.observed.scales, scales))
        self.actions.extend(self._staged_removal("the job has ended"))
        self._expire_scales(scales)
        ttl = self.job.spec.ttl_seconds_after_finished if self.job.spec else None
        completed = self.job.status.completion_time
        if ttl is not None and completed is not None:
            end = completed + timedelta(seconds=ttl)
            if end <= self.now:
                self.actions.append(DeleteJob(self.job.uid))
            else:
                self.alarm.at(end)

    def _count_all(self) -> None:
        """Counts of a job that is going away: what is there, without any wish for more."""
        for role in (*Role, TRAINER_ROLE):
            pods = [pod for pod in self.observed.pods if pod.role == role]
            plan = RolePlan(role, dict(_written_records(self.observed, role)))
            plan.failed_before = self.job.status.counts.get(role, _NONE).failed
            plan.wanted = frozenset(pod.rank for pod in pods)
            plan.current = {pod.rank: pod for pod in sorted(pods, key=lambda one: one.incarnation)}
            plan.succeeded = {
                rank for rank, pod in plan.current.items() if classify(pod).cause is Cause.SUCCEEDED
            }
            self.plans[role] = plan

    def _staged_removal(self, why: str) -> list[DeletePod]:
        for stage in _REMOVAL_STAGES:
            here = [pod for pod in self.observed.pods if pod.role in stage and not pod.ended]
            if here:
                return [DeletePod(pod.name, pod.uid, why) for pod in here if pod.live]
        return []

    # A job that has not finished

    def _work(self) -> None:
        observed, job = self.observed, self.job
        fault = acceptance.fault_of_spec(job, self.settings)
        if fault is not None or job.spec is None:
            self._not_accepted(fault or (JobReason.INVALID_SPEC, job.spec_error))
            return
        spec = job.spec
        held = self._held()
        scales = admit(job, spec, observed.scales, held, self.now)
        scales, alarm = prepare(spec, scales, held, self.now)
        self.alarm.at(alarm)
        target = compute_target(spec, scales, held)
        scales = preview.fill_in(spec, scales, held, target)
        observed = self.observed = dataclasses.replace(observed, scales=tuple(scales))
        asked_for = compute_target(spec, scales) if held else target
        fault = acceptance.fault_of_target(spec, asked_for)
        if fault is not None:
            self._not_accepted(fault)
            return
        if job.status.start_time is None:
            self.additions["startTime"] = write_time(self.now)
        started = self._set_planned(spec, scales)
        self._plan_roles(spec, target, started=started)
        self._set_accepted()
        failure = self._failure(spec)
        if failure is not None:
            self._fail(failure)
            return
        if self._has_succeeded(target):
            return
        self._act(spec, scales, target, held, started=started)

    def _set_accepted(self) -> None:
        """Accepted, unless the API server refuses something that is still to be created."""
        wanted = {
            pod_name(self.job, role, rank, incarnation)
            for role, plan in self.plans.items()
            for rank, incarnation in plan.create
        }
        if wanted and not self.observed.objects_ready:
            wanted |= {object_key(one.manifest) for one in job_objects(self.job)}
        self.refusals = {
            name: refusal for name, refusal in self.observed.refusals.items() if name in wanted
        }
        fault = acceptance.fault_of_objects(self.refusals)
        if fault is not None:
            self.conditions.set(JobCondition.ACCEPTED, False, *fault)
        else:
            self.conditions.set(JobCondition.ACCEPTED, True, JobReason.ACCEPTED)

    def _held(self) -> Held:
        """Counts in force of the roles that need consent, where they have had pods."""
        counts = self.job.status.counts
        return Held(
            {role: counts[role].desired for role in CONSENT if counts.get(role, _NONE).desired > 0},
            self.job.generation,
        )

    def _not_accepted(self, fault: acceptance.Fault) -> None:
        """Say so and leave everything as it is, until the spec changes."""
        self.conditions.set(JobCondition.ACCEPTED, False, *fault)
        for kind in (JobCondition.RUNNING, JobCondition.SCALING):
            if self.conditions.get(kind) == self.job.status.conditions.get(kind):
                continue
            self.conditions.set(kind, False, fault[0], fault[1])
        self._not_finished()
        if self.conditions.get(JobCondition.SUSPENDED) != self.job.status.conditions.get(
            JobCondition.SUSPENDED
        ):
            self.conditions.set(JobCondition.SUSPENDED, False, JobReason.NOT_SUSPENDED)
        self._write_status(frozenset(), urgent=True)

    def _not_finished(self) -> None:
        self.conditions.set(JobCondition.SUCCEEDED, False, JobReason.NOT_FINISHED)
        self.conditions.set(JobCondition.FAILED, False, JobReason.NOT_FINISHED)

    def _set_planned(self, spec: ElasticJobSpec, scales: list[Scale]) -> bool:
        """Set condition Planned; returns whether the replicas may start."""
        kind, conditions = JobCondition.PLANNED, self.conditions
        before = self.job.status.conditions.get(kind)
        if spec.optimize is Optimize.MANUAL:
            text = "optimize is Manual: the job is what its spec says"
            conditions.set(kind, True, JobReason.NO_PLAN_WANTED, text)
            return True
        if before is not None and before.status == "True":
            return True
        plan = max(
            (one for one in scales if _is_plan(one)), key=lambda one: one.order, default=None
        )
        if plan is not None:
            text = f"Scale {plan.name} by {plan.source.value}"
            conditions.set(kind, True, JobReason.PLAN_ADMITTED, text)
            return True
        if before is not None and before.status == "False":
            return True
        due = self._plan_due()
        if due <= self.now:
            text = "no plan came in time; the job starts with what its spec says"
            conditions.set(kind, False, JobReason.BRAIN_UNAVAILABLE, text)
            return True
        if not spec.suspend:
            self.alarm.at(due)
        text = "waits for the first plan"
        conditions.set(kind, None, JobReason.WAITING_FOR_PLAN, text)
        return False

    def _plan_due(self) -> datetime:
        """When the job starts even without a plan."""
        due = (self.job.status.start_time or self.now) + timing.PLAN_AFTER_ACCEPTANCE
        for pod in self.observed.pods:
            if pod.role == TRAINER_ROLE and pod.live and pod.ready and pod.ready_since:
                due = min(due, pod.ready_since + timing.PLAN_AFTER_TRAINER_READY)
        return due

    def _plan_roles(self, spec: ElasticJobSpec, target: Target, *, started: bool) -> None:
        seen = fingerprints(self.observed.pods)
        for role in (TRAINER_ROLE, *Role):
            wanted = not spec.suspend and (started or role == TRAINER_ROLE)
            planner = RolePlanner(self.observed, spec, role, target, seen, self.alarm, self.now)
            self.plans[role] = planner.plan(wanted=wanted)
        self.keep_desired = spec.suspend or not started

    def _failure(self, spec: ElasticJobSpec) -> Failure | None:
        if spec.suspend:
            return None
        limit = spec.active_deadline_seconds
        status = self.job.status
        if limit is not None and status.start_time is not None:
            end = status.start_time + timedelta(seconds=limit + self._suspended_seconds())
            if end <= self.now:
                text = f"the job was active for longer than activeDeadlineSeconds, {limit}"
                return Failure(JobReason.DEADLINE_EXCEEDED, text)
            self.alarm.at(end)
        failures = [one for plan in self.plans.values() for one in plan.failures]
        return failures[0] if failures else None

    def _suspended_seconds(self) -> int:
        """Seconds spent suspended up to now, the present suspension included."""
        total = self.job.status.suspended_seconds
        found = self.job.status.conditions.get(JobCondition.SUSPENDED)
        if found is not None and found.status == "True":
            total += max(0, int((self.now - found.since).total_seconds()))
        return total

    def _fail(self, failure: Failure) -> None:
        """End the job as Failed, once the log of what failed has been read."""
        pod, message = failure.pod, failure.message
        if pod is not None and failure.container:
            if pod.uid not in self.observed.logs:
                self.actions.append(FetchLog(pod.name, pod.uid, failure.container))
                self.alarm.at(self.now)
                return
            lines = self.observed.logs[pod.uid].rstrip("\n")
            where = f" on node {pod.node}" if pod.node else ""
            message = (
                f"{message}{where}. Last lines of its log:\n{lines}"
                if lines
                else (f"{message}{where}. Its log is empty or gone.")
            )
        self._finish(JobCondition.FAILED, failure.reason, message)

    def _finish(self, kind: JobCondition, reason: JobReason, message: str) -> None:
        self._not_finished()
        self.conditions.set(kind, True, reason, message)
        for other in (JobCondition.RUNNING, JobCondition.SCALING):
            self.conditions.set(other, False, JobReason.FINISHED)
        self.conditions.set(JobCondition.SUSPENDED, False, JobReason.NOT_SUSPENDED)
        self.additions["completionTime"] = write_time(self.now)
        self.keep_desired = True
        for role, plan in self.plans.items():  # a finished job makes no pods: reserve none
            plan.records = dict(_written_records(self.observed, role))
        self.actions.extend(history.status_patches(self._scales_as_written, self.observed.scales))
        self._write_status(frozenset(), urgent=True)
        self.alarm.at(self.now)

    def _has_succeeded(self, target: Target) -> bool:
        workers, trainer = self.plans[Role.WORKER], self.plans[TRAINER_ROLE]
        quota = range(target.role(Role.WORKER).replicas)
        if workers.wanted and all(rank in workers.succeeded for rank in quota):
            text = f"all {len(quota)} workers succeeded"
            self._finish(JobCondition.SUCCEEDED, JobReason.ALL_RANKS_SUCCEEDED, text)
            return True
        if not trainer.succeeded:
            return False
        return self._data_exhausted(workers, trainer.current[0])

    def _data_exhausted(self, workers: RolePlan, trainer: Pod) -> bool:
        """The trainer has exited 0: nothing is replaced any more, and workers get time to exit.

        Returns:
            Whether the pass ends here; it does, since no pod is to be made.
        """
        ended_at = max(
            (one.finished_at for one in trainer.containers if one.finished_at),
            default=trainer.created,
        )
        limit = ended_at + timing.FINISH_GRACE
        running = [pod for pod in self.observed.pods if pod.role == Role.WORKER and not pod.ended]
        ended = [
            pod
            for pod in self.observed.pods
            if pod.role == Role.WORKER and pod.ended and pod.rank in workers.current
        ]
        if running and limit > self.now:
            for role, plan in self.plans.items():
                plan.records = dict(_written_records(self.observed, role))
            self._not_finished()
            self._write_status(frozenset(), urgent=False)
            self.alarm.at(limit)
        elif workers.succeeded or running or not ended:
            text = "the trainer reports the data exhausted"
            self._finish(JobCondition.SUCCEEDED, JobReason.DATA_EXHAUSTED, text)
        else:
            text = "the trainer reports the data exhausted, but no worker exited with 0"
            self._finish(JobCondition.FAILED, JobReason.WORKERS_FAILED, text)
        return True

    def _act(
        self,
        spec: ElasticJobSpec,
        scales: list[Scale],
        target: Target,
        held: Held,
        *,
        started: bool,
    ) -> None:
        self._not_finished()
        self._set_progress(spec, scales, target, started=started)
        scales = history.settle(
            scales,
            target,
            lambda role: started and self.plans[role].settled,
            suspended=spec.suspend,
            now=self.now,
        )
        self.applied = history.applied_plan(scales, target)
        self.actions.extend(history.status_patches(self._scales_as_written, scales))
        self.actions.extend(of_scales(self._scales_as_written, scales))
        self._write_own_scales(spec, scales, target, held)
        reserves = frozenset[tuple[str, int, int]]().union(
            *(plan.reserves for plan in self.plans.values())
        )
        self._write_status(reserves, urgent=False)
        self._change_pods(spec, target)
        self._expire_scales(scales)

    def _set_progress(
        self, spec: ElasticJobSpec, scales: list[Scale], target: Target, *, started: bool
    ) -> None:
        conditions = self.conditions
        if spec.suspend:
            here = [pod for pod in self.observed.pods if not pod.ended]
            for kind in (JobCondition.RUNNING, JobCondition.SCALING):
                conditions.set(kind, False, JobReason.SUSPENDED)
            if here:
                text = f"{len(here)} pods are draining"
                conditions.set(JobCondition.SUSPENDED, False, JobReason.DRAINING, text)
            else:
                conditions.set(JobCondition.SUSPENDED, True, JobReason.SUSPENDED)
            return
        if self.job.status.is_true(JobCondition.SUSPENDED):
            self.additions["suspendedSeconds"] = self._suspended_seconds()
        conditions.set(JobCondition.SUSPENDED, False, JobReason.NOT_SUSPENDED)
        if not started:
            text = "waits for the first plan"
            conditions.set(JobCondition.RUNNING, False, JobReason.WAITING_FOR_PLAN, text)
            set_scaling(conditions, spec, target, self.plans, self.refusals)
            return
        local = own_scales.input_runs_locally(scales, target)
        set_running(conditions, spec, target, self.plans, input_is_local=local)
        set_scaling(conditions, spec, target, self.plans, self.refusals)

    def _write_own_scales(
        self,
        spec: ElasticJobSpec,
        scales: list[Scale],
        target: Target,
        held: Held,
    ) -> None:
        written = [scale for plan in self.plans.values() for scale in plan.scales]
        edit, due = own_scales.spec_edit(self.job, spec, scales, held, self.now)
        self.alarm.at(due)
        if edit is not None:
            written.append(edit)
        failures = [
            (at, pod)
            for pod in self.observed.pods
            if pod.role == Role.DATA_WORKER and pod.ended and pod.phase == "Failed"
            for at in [classify(pod).at or pod.created]
        ]
        pinned = {
            key for one in scales if one.policy is Policy.PIN and not one.dry_run
            for key in one.fields if target.origins.get(key) == one.name
        }  # fmt: skip
        local = own_scales.run_input_locally(self.job, failures, target, scales, pinned, self.now)
        if local is not None:
            written.append(local)
        for scale in written:
            spec_of_scale = scale.manifest["spec"]
            text = f"{spec_of_scale['reason']}: {spec_of_scale['message']}"
            self.actions += [scale, RecordEvent(EventReason.SCALE_WRITTEN, text[:1024])]

    def _change_pods(self, spec: ElasticJobSpec, target: Target) -> None:
        removed: list[str] = []
        if spec.suspend:
            self.actions.extend(self._staged_removal("the job is suspended"))
        else:
            for plan in self.plans.values():
                self.actions.extend(DeletePod(pod.name, pod.uid, why) for pod, why in plan.remove)
                removed.extend(pod.label for pod, _ in plan.remove)
                self.actions.extend(plan.resize)
            self._lift_gates()
            self._create_pods(spec, target)
            self._drop_old_dead()
        replaced = [text for plan in self.plans.values() for text in plan.replaced]
        if replaced:
            self._event(EventReason.PODS_REPLACED, replaced, "; ")
        if removed and not replaced:
            self._event(EventReason.PODS_REMOVED, removed, ", ")

    def _event(self, reason: EventReason, items: list[str], separator: str) -> None:
        text = separator.join(items[:_SHOWN])
        more = f" (and {len(items) - _SHOWN} more)" if len(items) > _SHOWN else ""
        self.actions.append(RecordEvent(reason, (text + more)[:1024]))

    def _lift_gates(self) -> None:
        if self.observed.planner_alive:
            return
        gated = [pod for pod in self.observed.pods if pod.live and pod.gated]
        self.actions.extend(LiftGate(pod.name, pod.uid) for pod in gated)
        if gated:
            self._event(EventReason.GATES_LIFTED, [pod.label for pod in gated], ", ")

    def _create_pods(self, spec: ElasticJobSpec, target: Target) -> None:
        creations: list[Action] = []
        counts: dict[str, int] = {}
        for name, plan in self.plans.items():
            for rank, incarnation in plan.create:
                if name == TRAINER_ROLE:
                    manifest = trainer_pod(self.job, spec, self.settings, incarnation)
                else:
                    role = Role(name)
                    own = target.role(role)
                    manifest = replica_pod(
                        self.job,
                        spec,
                        role,
                        rank,
                        incarnation,
                        own.rank(rank),
                        spare=role is Role.WORKER and rank >= own.replicas,
                        gated=role is Role.DATA_WORKER and self.observed.planner_alive,
                    )
                creations.append(CreatePod(name, rank, incarnation, manifest))
                counts[name] = counts.get(name, 0) + 1
        if creations and not self.observed.objects_ready:
            self.actions.extend(job_objects(self.job))
        self.actions.extend(creations)
        if creations:
            text = ", ".join(f"{count} {name}" for name, count in counts.items())
            first = self.job.status.start_time is None
            reason = EventReason.ACCEPTED if first else EventReason.PODS_CREATED
            self.actions.append(RecordEvent(reason, f"creates {text}"))

    def _drop_old_dead(self) -> None:
        """Ended pods that have been replaced stay for a while, for whoever wants their log."""
        for pod in self.observed.pods:
            plan = self.plans[pod.role]
            if not pod.ended or pod.deleting or plan.current.get(pod.rank) is pod:
                continue
            ended = max(
                (one.finished_at for one in pod.containers if one.finished_at), default=pod.created
            )
            end = ended + timing.DEAD_POD_RETENTION
            if end <= self.now:
                self.actions.append(DeletePod(pod.name, pod.uid, "it was replaced some time ago"))
            else:
                self.alarm.at(end)

    def _expire_scales(self, scales: list[Scale]) -> None:
        deletions, due = history.expire(scales, self.now)
        self.actions.extend(deletions)
        self.alarm.at(due)

    def _write_status(self, reserves: frozenset[tuple[str, int, int]], *, urgent: bool) -> None:
        status = build_status(
            self.job,
            self.conditions,
            self.plans,
            self.applied,
            keep_desired=self.keep_desired,
            additions=self.additions,
        )
        patch = merge_patch(self.job.status.raw, status)
        new = reserves - self.observed.reserved
        if not patch and not new:
            return
        quiet = not (urgent or new or self.conditions.flipped or patch.keys() & _AT_ONCE)
        last = self.observed.status_written_at
        if quiet and last is not None and last + timing.STATUS_INTERVAL > self.now:
            self.alarm.at(last + timing.STATUS_INTERVAL)
            return
        self.actions.append(PatchJobStatus(self.job.resource_version, {"status": patch}, reserves))
        self.actions.extend(transitions(self.conditions))


_AT_ONCE: Final = frozenset({"ranks", "trainer", "plan", "completionTime", "startTime"})
_NONE: Final = RoleCounts()
_SHOWN: Final = 5


def _is_plan(scale: Scale) -> bool:
    """Whether a Scale is a plan that a job may start with: not one of the controller's own."""
    return (
        scale.source is not Source.CONTROLLER
        and not scale.dry_run
        and scale.names_role(Role.WORKER)
        and scale.is_true(ScaleCondition.ADMITTED)
        and not scale.is_true(ScaleCondition.FAILED)
    )


def _written_records(observed: Observed, role: str) -> Mapping[int, Any]:
    status = observed.job.status
    if role == TRAINER_ROLE:
        return {} if status.trainer is None else {0: status.trainer}
    return status.ranks.get(role, {})
