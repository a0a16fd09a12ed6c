"""What one process remembers about a job beyond what the cluster holds: all of it may be lost.

Nothing here is needed for the right end, only for getting there with fewer steps: after a restart
an incarnation that was reserved but perhaps not created is skipped, a log is read again, and the
job's own objects are created again and found to exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.controller.reconcile.model.observed import Job, Refusal
from penstock.controller.reconcile.scales.acceptance import template_path
from penstock.crds.conditions import JobCondition

Reservation = tuple[str, int, int]


@dataclass(slots=True)
class JobCache:
    """What this process has done for one job and what came of it.

    The rules about reservations are what keeps an incarnation from being used twice: it is added
    when the status that records it is known to be written, and removed before a creation whose
    outcome could remain unknown.
    """

    reserved: set[Reservation] = field(default_factory=set)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    unresizable: set[str] = field(default_factory=set)
    known_templates: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    cache_refused: bool = False
    snapshots_refused: bool = False
    gang_refusal: Refusal | None = None
    objects_seen_at: datetime | None = None
    objects_missing: bool = False
    status_written_at: datetime | None = None
    generation: int = 0

    def status_written(self, reserves: frozenset[Reservation], now: datetime) -> None:
        """The API server has stored a status that allows these incarnations to be created."""
        self.reserved |= reserves
        self.status_written_at = now

    def creating(self, reservation: Reservation) -> None:
        """A creation is about to be sent."""
        self.reserved.discard(reservation)

    def not_created(self, reservation: Reservation, name: str, refusal: Refusal) -> None:
        """The API server said that it did not create the pod: the incarnation is still unused."""
        self.reserved.add(reservation)
        self.refusals[name] = refusal

    def record_refusal(self, name: str, refusal: Refusal) -> None:
        """The API server would not create an object."""
        self.refusals[name] = refusal

    def record_log(self, uid: str, text: str) -> None:
        """The end of a pod's log has been read, or cannot be."""
        self.logs[uid] = text

    def record_unresizable(self, uid: str) -> None:
        """A pod's node does not resize it: it is replaced instead."""
        self.unresizable.add(uid)

    def created(self, name: str, role: str = "") -> None:
        """An object exists now, and so a pod of its role's template is possible."""
        self.refusals.pop(name, None)
        self.refusals.pop(template_path(role), None)

    def cache_is_refused(self) -> bool:
        """The API server takes the job's pods without the socket of the node's cache alone.

        Returns:
            Whether that is news.
        """
        news = not self.cache_refused
        self.cache_refused = True
        return news

    def snapshots_are_refused(self) -> bool:
        """The API server has taken a pod of the job without room for snapshots alone.

        It is asked for room again with the next pod, since what a quota leaves changes.

        Returns:
            Whether that is news.
        """
        news = not self.snapshots_refused
        self.snapshots_refused = True
        return news

    def objects_seen(self, now: datetime) -> None:
        """The job's own objects are all there."""
        self.objects_seen_at = now
        self.objects_missing = False

    def doubt_objects(self) -> None:
        """One of the job's own objects may be gone: make sure of them all again."""
        self.objects_seen_at = None

    def miss_objects(self, seen: datetime) -> bool:
        """One of the job's own objects was found to be gone at a time.

        Returns:
            Whether that is news: false where this process has made sure of them since.
        """
        if self.objects_seen_at is not None and self.objects_seen_at >= seen:
            return False
        self.objects_missing = True
        return True

    def template_checked(
        self, role: str, template: Mapping[str, Any], refusal: Refusal | None
    ) -> None:
        """The API server has said whether it takes pods of a template."""
        self.known_templates[role] = template
        path = template_path(role)
        if refusal is None:
            self.refusals.pop(path, None)
        else:
            self.refusals[path] = refusal

    def observe(self, job: Job, pod_uids: frozenset[str]) -> None:
        """Forget what a new spec or the end of a pod has made meaningless.

        The templates of a spec that was found acceptable are known, whoever found it so.
        """
        if job.generation != self.generation:
            self.generation = job.generation
            self.known_templates = {
                role: template
                for role, template in self.known_templates.items()
                if template_path(role) not in self.refusals
            }
            self.refusals.clear()
            self.cache_refused = False
            self.snapshots_refused = False
        accepted = job.status.conditions.get(JobCondition.ACCEPTED)
        if (
            job.spec is not None
            and accepted is not None
            and accepted.status == "True"
            and accepted.observed_generation == job.generation
        ):
            roles = job.spec.replica_specs.by_role()
            self.known_templates = {role: declared.template for role, declared in roles.items()}
        if self.unresizable:
            self.unresizable &= pod_uids
        if self.logs:
            self.logs = {uid: text for uid, text in self.logs.items() if uid in pod_uids}
