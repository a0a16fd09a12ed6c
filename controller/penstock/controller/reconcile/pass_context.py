"""The working state of one call of `reconcile`: what is observed, found, and to be done.

The modules that decide (`planned`, `ending`, `pod_changes`) each fill in their part of it, in the
order in which `reconcile` calls them; actions are carried out in the order in which they are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.base.enums import TRAINER_ROLE
from penstock.controller.reconcile.desired.ranks import RolePlan
from penstock.controller.reconcile.model import timing
from penstock.controller.reconcile.model.actions import Action, Alarm, PatchJobStatus, RecordEvent
from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.events import transitions
from penstock.controller.reconcile.model.observed import (
    Observed,
    RankRecord,
    Refusal,
    RoleCounts,
    Scale,
    Settings,
)
from penstock.controller.reconcile.scales import scale_lifecycle
from penstock.controller.reconcile.status import build_status, merge_patch
from penstock.crds.conditions import JobCondition, JobReason
from penstock.crds.events import EventReason

NO_COUNTS: Final = RoleCounts()
_AT_ONCE: Final = frozenset({"ranks", "trainer", "plan", "completionTime", "startTime"})
_SHOWN: Final = 5


class PassContext:
    """One pass over one job."""

    def __init__(self, observed: Observed, settings: Settings, now: datetime) -> None:
        self.observed = observed
        self.settings = settings
        self.now = now
        self.job = observed.job
        self.alarm = Alarm()
        self.conditions = Conditions(self.job.status.conditions, self.job.generation, now)
        self.plans: dict[str, RolePlan] = {}
        self.template_faults: dict[str, tuple[JobReason, str]] = {}
        self.beyond_limits: tuple[JobReason, str] | None = None
        self.additions: dict[str, Any] = {}
        self.plan: Mapping[str, str] | None = self.job.status.raw.get("plan")
        self.keep_desired = True
        self.actions: list[Action] = []
        self.refusals: Mapping[str, Refusal] = {}
        self.scales_as_written = observed.scales

    def written_records(self, role: str) -> dict[int, RankRecord]:
        """What the job's status records of the ranks of a role."""
        status = self.job.status
        if role == TRAINER_ROLE:
            return {} if status.trainer is None else {0: status.trainer}
        return dict(status.ranks.get(role, {}))

    def reserve_nothing(self) -> None:
        """A job that is ending makes no pods: its records stay as they are written."""
        for role, plan in self.plans.items():
            plan.records = self.written_records(role)

    def suspended_seconds(self) -> int:
        """Seconds spent suspended up to now, the present suspension included."""
        total = self.job.status.suspended_seconds
        found = self.job.status.conditions.get(JobCondition.SUSPENDED)
        if found is not None and found.status == "True":
            total += max(0, int((self.now - found.since).total_seconds()))
        return total

    def not_finished(self) -> None:
        """The job has neither succeeded nor failed."""
        self.conditions.set(JobCondition.SUCCEEDED, False, JobReason.NOT_FINISHED)
        self.conditions.set(JobCondition.FAILED, False, JobReason.NOT_FINISHED)

    def event(self, reason: EventReason, items: list[str], separator: str) -> None:
        """Record an Event that lists the first few of several things."""
        text = separator.join(items[:_SHOWN])
        more = f" (and {len(items) - _SHOWN} more)" if len(items) > _SHOWN else ""
        self.actions.append(RecordEvent(reason, (text + more)[:1024]))

    def expire_scales(self, scales: list[Scale]) -> None:
        """Delete the Scales that no longer count and whose time is over."""
        deletions, due = scale_lifecycle.expire(scales, self.now)
        self.actions.extend(deletions)
        self.alarm.at(due)

    def write_status(self, reserves: frozenset[tuple[str, int, int]], *, urgent: bool) -> None:
        """Write the status if it has changed; mere counts at most once an interval."""
        status = build_status(
            self.job,
            self.conditions,
            self.plans,
            self.plan,
            keep_desired=self.keep_desired,
            additions=self.additions,
        )
        patch = merge_patch(self.job.status.raw, status)
        new = reserves - self.observed.reserved
        if not patch and not new:
            return
        quiet = not (urgent or new or self.conditions.flipped or patch.keys() & _AT_ONCE)
        last = self.observed.status_written_at
        due = None if last is None else last + self._interval(patch)
        if quiet and due is not None and due > self.now:
            self.alarm.at(due)
            return
        self.actions.append(PatchJobStatus(self.job.resource_version, {"status": patch}, reserves))
        self.actions.extend(transitions(self.conditions))

    def _interval(self, patch: Mapping[str, Any]) -> timedelta:
        """How long after one write of the status mere counts may wait for the next."""
        counts = patch.get("replicas") or {}
        if patch.keys() == {"replicas"} and all(
            one.keys() == {"created"} for one in counts.values()
        ):
            return timing.CREATED_STATUS_INTERVAL
        if self.conditions.is_true(JobCondition.SCALING):
            return timing.SCALING_STATUS_INTERVAL
        return timing.STATUS_INTERVAL
