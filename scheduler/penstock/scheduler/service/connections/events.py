"""Kubernetes Events that say of a pod where it went and why, with the node that was next best.

And of a job that it waits for something that no data worker would bring.

Events are for people who look at one pod: in a rush of thousands they would cost as much as the
pins themselves. So there is a bound on how many are recorded in a while; the rest is dropped and
counted. `GET /v1/cluster/allocations` has all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from penstock.crds.group import API_VERSION, ELASTICJOB_KIND
from penstock.kube.api import Api
from penstock.kube.errors import ApiError
from penstock.scheduler.model.decisions import Reason, Record
from penstock.scheduler.service.metrics import Metrics

logger = logging.getLogger(__name__)

BURST: Final = 100
"""Events recorded at once; as many more as `PER_SECOND` allows come after."""

PER_SECOND: Final = 10.0

_WARNINGS: Final = frozenset(
    {Reason.NO_ROOM, Reason.UNREADABLE, Reason.PIN_UNSCHEDULABLE, Reason.FETCH_STALL}
)
_OF_JOBS: Final = frozenset({Reason.FETCH_STALL})
"""What is told of a job; its other decisions show in the Scales that carry them out."""


class Events:
    """Records Events in the background, at a bounded rate."""

    def __init__(self, api: Api, metrics: Metrics, identity: str) -> None:
        self._api = api
        self._metrics = metrics
        self._identity = identity
        self._waiting: deque[Record] = deque()
        self._some = asyncio.Event()

    def tell(self, record: Record) -> None:
        """Record a decision about a pod, or a notice about a job, unless there are too many."""
        if record.view is None and record.reason not in _OF_JOBS:
            return
        if len(self._waiting) >= BURST:
            self._metrics.events_dropped.inc()
            return
        self._waiting.append(record)
        self._some.set()

    async def run(self) -> None:
        """Record until cancelled."""
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                record = self._waiting.popleft()
                try:
                    body = event_of(record, self._identity)
                    await self._api.submit("events", body["metadata"]["namespace"], body)
                except ApiError as error:
                    self._metrics.call_errors.labels("Event", error.reason).inc()
                    logger.info("an Event was not recorded: %s", error)
                await asyncio.sleep(1.0 / PER_SECOND)


def event_of(record: Record, identity: str) -> dict[str, Any]:
    """The Event of a decision about a pod, or a job."""
    about = _subject(record)
    at = datetime.fromtimestamp(record.time_seconds, UTC).isoformat(timespec="seconds")
    time = at.replace("+00:00", "Z")
    return {
        "metadata": {
            "name": f"{about['name'][:200]}.{uuid4().hex[:16]}",
            "namespace": about["namespace"],
        },
        "involvedObject": about,
        "reason": record.reason,
        "message": record.message[:1024],
        "type": "Warning" if record.reason in _WARNINGS else "Normal",
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "source": {"component": "penstock-scheduler"},
        "reportingComponent": "penstock.dev/scheduler",
        "reportingInstance": identity,
    }


def _subject(record: Record) -> dict[str, str]:
    view = record.view
    if view is None:
        return {
            "apiVersion": API_VERSION,
            "kind": ELASTICJOB_KIND,
            "name": record.job,
            "namespace": record.namespace,
            "uid": record.job_uid,
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": view.name,
        "namespace": view.namespace,
        "uid": view.uid,
    }
