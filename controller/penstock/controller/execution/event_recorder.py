"""Events of a job, as `kubectl describe` shows them.

Most of them repeat what conditions and pods say. In a rush of a thousand jobs those would cost as
much as the jobs' own status, so there is a bound on how many are recorded in a while; the rest is
dropped and counted. Warnings are always recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final
from uuid import uuid4

from penstock.base.fields import write_time
from penstock.controller.metrics import Metrics
from penstock.controller.reconcile.model.actions import RecordEvent
from penstock.controller.reconcile.model.conditions import readable
from penstock.controller.reconcile.model.observed import Job
from penstock.crds import labels
from penstock.crds.group import API_VERSION, ELASTICJOB_KIND
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError

BURST: Final = 100
"""Events of type Normal recorded at once; as many more as `PER_SECOND` allows come after."""

PER_SECOND: Final = 10.0

_WARNING: Final = "Warning"


class EventRecorder:
    """Records Events in the name of this controller."""

    def __init__(
        self, api: Api, metrics: Metrics, clock: Callable[[], datetime], identity: str
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._clock = clock
        self._identity = identity
        self._left = float(BURST)
        self._counted_at = clock()

    async def record(self, job: Job, action: RecordEvent) -> None:
        """Record an Event on a job."""
        await self.record_on(
            {
                "apiVersion": API_VERSION,
                "kind": ELASTICJOB_KIND,
                "name": job.name,
                "namespace": job.namespace,
                "uid": job.uid,
            },
            action,
        )

    async def record_on(self, about: Mapping[str, str], action: RecordEvent) -> None:
        """Record an Event. One that the server refuses is not worth holding anything up for."""
        moment = self._clock()
        if action.reason.severity != _WARNING and not self._has_room(moment):
            self._metrics.events_dropped.inc()
            return
        now = write_time(moment)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about['name']}.{uuid4().hex[:16]}",
                "namespace": about["namespace"],
                "labels": {labels.JOB: about["name"]},
            },
            "involvedObject": dict(about),
            "type": action.reason.severity,
            "reason": action.reason.value,
            "message": readable(action.message),
            "source": {"component": "penstock-controller"},
            "reportingComponent": "penstock.dev/controller",
            "reportingInstance": self._identity,
            "action": "Reconcile",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.submit("events", about["namespace"], event)
        except ApiRefusedError as error:
            self._metrics.errors.labels(f"Event{error.reason}").inc()

    def _has_room(self, now: datetime) -> bool:
        """Whether one more may be recorded, which then counts as recorded."""
        passed = max(0.0, (now - self._counted_at).total_seconds())
        self._left = min(float(BURST), self._left + passed * PER_SECOND)
        self._counted_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
