"""How a job ends, and what becomes of one that has ended.

A job ends once: as Succeeded when every rank has succeeded or the trainer reports the data
exhausted, as Failed for the first reason found. What the trainer says has failed the job comes
first: programs that exit with 0 do not make a success of it. An ended job keeps its ended pods for
their logs, drops the running ones, and never starts again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from penstock.base.enums import TRAINER_ROLE, Role
from penstock.base.fields import write_time
from penstock.controller.reconcile.desired.ranks import Failure, RolePlan
from penstock.controller.reconcile.desired.replacement import Cause, classify
from penstock.controller.reconcile.desired.targets import Target
from penstock.controller.reconcile.desired.tensorflow import ends_with_its_chief
from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.actions import DeleteJob, DeletePod, FetchLog
from penstock.controller.reconcile.model.observed import Pod
from penstock.controller.reconcile.pass_context import NO_COUNTS, PassContext
from penstock.controller.reconcile.pod_changes import staged_removal
from penstock.controller.reconcile.scales import scale_lifecycle
from penstock.controller.reconcile.scales.admission import refuse
from penstock.crds.conditions import JobCondition, JobReason, ScaleReason
from penstock.crds.elasticjob import ElasticJobSpec

_LOG_CHARACTERS: Final = 3000
"""Of the log's last lines, what leaves room in the message for what happened."""


def has_ended(context: PassContext) -> bool:
    """Whether the job has succeeded or failed."""
    return context.conditions.is_true(JobCondition.SUCCEEDED) or context.conditions.is_true(
        JobCondition.FAILED
    )


def clean_up(context: PassContext) -> None:
    """A finished job: its running pods go, its Scales are refused, and at last it goes itself."""
    scales = [
        scale
        if scale.is_decided
        else refuse(scale, ScaleReason.JOB_FINISHED, "the job has ended", context.now)
        for scale in context.observed.scales
    ]
    _count_all(context)
    context.write_status(frozenset(), urgent=False)
    context.actions.extend(scale_lifecycle.status_patches(context.observed.scales, scales))
    context.actions.extend(staged_removal(context, "the job has ended"))
    context.expire_scales(scales)
    ttl = context.job.spec.ttl_seconds_after_finished if context.job.spec else None
    completed = context.job.status.completion_time
    if ttl is not None and completed is not None:
        end = completed + timedelta(seconds=ttl)
        if end <= context.now:
            context.actions.append(DeleteJob(context.job.uid))
        else:
            context.alarm.at(end)


def _count_all(context: PassContext) -> None:
    """Counts of a job that is going away: what is there, without any wish for more."""
    for role in (*Role, TRAINER_ROLE):
        pods = [pod for pod in context.observed.pods if pod.role == role]
        plan = RolePlan(role, context.written_records(role))
        written = context.job.status.counts.get(role, NO_COUNTS)
        plan.failed_before, plan.succeeded_before = written.failed, written.succeeded
        plan.wanted = frozenset(pod.rank for pod in pods)
        plan.current = {pod.rank: pod for pod in sorted(pods, key=lambda one: one.incarnation)}
        plan.succeeded = {
            rank for rank, pod in plan.current.items() if classify(pod).cause is Cause.SUCCEEDED
        }
        context.plans[role] = plan


def fails(context: PassContext, spec: ElasticJobSpec) -> bool:
    """End the job as Failed if there is a reason to; returns whether the pass ends here."""
    failure = _failure(context, spec)
    if failure is not None:
        _fail(context, failure)
    return failure is not None


def _failure(context: PassContext, spec: ElasticJobSpec) -> Failure | None:
    fatal = [one for one in context.job.status.problems if one.fatal and one.reason.fails_the_job]
    if fatal:  # the same word would end the job as soon as it is no longer suspended
        return Failure(fatal[0].reason, fatal[0].message)
    if spec.suspend:
        return None
    limit = spec.active_deadline_seconds
    status = context.job.status
    if limit is not None and status.start_time is not None:
        end = status.start_time + timedelta(seconds=limit + context.suspended_seconds())
        if end <= context.now:
            text = f"the job was active for longer than activeDeadlineSeconds, {limit}"
            return Failure(JobReason.DEADLINE_EXCEEDED, text)
        context.alarm.at(end)
    failures = [one for plan in context.plans.values() for one in plan.failures]
    return failures[0] if failures else None


def _fail(context: PassContext, failure: Failure) -> None:
    """End the job as Failed, once the log of what failed has been read."""
    pod, message = failure.pod, failure.message
    if pod is not None and failure.container:
        if pod.uid not in context.observed.logs:
            context.actions.append(FetchLog(pod.name, pod.uid, failure.container))
            context.alarm.at(context.now)
            return
        lines = context.observed.logs[pod.uid].rstrip("\n")
        if len(lines) > _LOG_CHARACTERS:
            lines = f"...{lines[-_LOG_CHARACTERS:]}"
        where = f" on node {pod.node}" if pod.node else ""
        message = (
            f"{message}{where}. Last lines of its log:\n{lines}"
            if lines
            else f"{message}{where}. Its log is empty or gone."
        )
    _finish(context, JobCondition.FAILED, failure.reason, message)


def _finish(context: PassContext, kind: JobCondition, reason: JobReason, message: str) -> None:
    context.not_finished()
    context.conditions.set(kind, True, reason, message)
    for other in (JobCondition.RUNNING, JobCondition.SCALING):
        context.conditions.set(other, False, JobReason.FINISHED)
    context.conditions.set(JobCondition.SUSPENDED, False, JobReason.NOT_SUSPENDED)
    context.additions["completionTime"] = write_time(context.now)
    context.keep_desired = True
    context.reserve_nothing()
    context.actions.extend(
        scale_lifecycle.status_patches(context.scales_as_written, context.observed.scales)
    )
    context.write_status(frozenset(), urgent=True)
    context.alarm.at(context.now)


def succeeds(context: PassContext, spec: ElasticJobSpec, target: Target) -> bool:
    """End the job as Succeeded if it has; returns whether the pass ends here."""
    workers, trainer = context.plans[Role.WORKER], context.plans[TRAINER_ROLE]
    if ends_with_its_chief(spec) and workers.wanted and 0 in workers.succeeded:
        text = "worker 0, the chief, succeeded"
        _finish(context, JobCondition.SUCCEEDED, JobReason.CHIEF_SUCCEEDED, text)
        return True
    quota = range(target.role(Role.WORKER).replicas)
    if workers.wanted and all(rank in workers.succeeded for rank in quota):
        text = f"all {len(quota)} workers succeeded"
        _finish(context, JobCondition.SUCCEEDED, JobReason.ALL_RANKS_SUCCEEDED, text)
        return True
    if not trainer.succeeded:
        return False
    _exhaust_data(context, workers, trainer.current[0])
    return True


def _exhaust_data(context: PassContext, workers: RolePlan, trainer: Pod) -> None:
    """The trainer has exited 0: nothing is replaced any more, and workers get time to exit.

    Those who trained may save and evaluate. One that began as the trainer ended waits for somebody
    who will never answer: it is ended soon, like a pod that is removed for any other reason.
    """
    ended_at = (trainer.main.finished_at if trainer.main else None) or trainer.created

    def limit(pod: Pod) -> datetime:
        late = workers.succeeded and _began(pod, context.now) > ended_at - timing.TOO_LATE_TO_TRAIN
        return ended_at + (timing.LATE_WORKER_GRACE if late else timing.FINISH_GRACE)

    pods = [pod for pod in context.observed.pods if pod.role == Role.WORKER]
    running = [pod for pod in pods if not pod.done]
    ended = [pod for pod in pods if pod.done and pod.rank in workers.current]
    waited_for = [limit(pod) for pod in running if limit(pod) > context.now]
    if waited_for:
        context.reserve_nothing()
        context.not_finished()
        context.write_status(frozenset(), urgent=False)
        context.actions.extend(
            DeletePod(pod.name, pod.uid, "it came after the end of the data")
            for pod in running
            if pod.live and limit(pod) <= context.now
        )
        context.alarm.at(min(waited_for))
    elif workers.succeeded or running or not ended:
        text = "the trainer reports the data exhausted"
        _finish(context, JobCondition.SUCCEEDED, JobReason.DATA_EXHAUSTED, text)
    else:
        text = "the trainer reports the data exhausted, but no worker exited with 0"
        _finish(context, JobCondition.FAILED, JobReason.WORKERS_FAILED, text)


def _began(pod: Pod, now: datetime) -> datetime:
    """When a pod's program began, as near as its status tells."""
    return (pod.ready_since if pod.ready else None) or pod.started or now
