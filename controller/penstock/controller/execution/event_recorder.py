"""Events of a job, as `kubectl describe` shows them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import uuid4

from penstock.controller.metrics import Metrics
from penstock.controller.reconcile.model.actions import RecordEvent
from penstock.controller.reconcile.model.conditions import readable
from penstock.controller.reconcile.model.observed import Job
from penstock.controller.reconcile.model.parsing import write_time
from penstock.crds import labels
from penstock.crds.group import API_VERSION, ELASTICJOB_KIND
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError


class EventRecorder:
    """Records Events in the name of this controller."""

    def __init__(
        self, api: Api, metrics: Metrics, clock: Callable[[], datetime], identity: str
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._clock = clock
        self._identity = identity

    async def record(self, job: Job, action: RecordEvent) -> None:
        """Record an Event. One that the server refuses is not worth holding anything up for."""
        now = write_time(self._clock())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{job.name}.{uuid4().hex[:16]}",
                "namespace": job.namespace,
                "labels": {labels.JOB: job.name},
            },
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": ELASTICJOB_KIND,
                "name": job.name,
                "namespace": job.namespace,
                "uid": job.uid,
            },
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
            await self._api.submit("events", job.namespace, event)
        except ApiRefusedError as error:
            self._metrics.errors.labels(f"Event{error.reason}").inc()
