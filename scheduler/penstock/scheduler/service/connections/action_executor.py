"""Carries actions out: one call each, in any order but for what has to come first.

A pin is one PATCH: each required affinity term is narrowed to the node, and our gate, no other, is
removed. It is conditional on the pod's uid. What becomes of a call that failed is the planner's to
decide: it is told after a pause that grows, and plans anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.base.enums import Source
from penstock.crds import labels
from penstock.crds.group import API_VERSION, SCALE_KIND, SCALE_PLURAL
from penstock.kube.api import Api, Json
from penstock.kube.errors import ApiError, ApiRefusedError, ApiUnavailableError
from penstock.scheduler.model.decisions import (
    Action,
    DeletePod,
    Pin,
    SetDeletionCost,
    WriteScale,
)
from penstock.scheduler.model.pod_view import PINNED_AT, PINNED_NODE, PodView, pinned_terms
from penstock.scheduler.service.metrics import Metrics

logger = logging.getLogger(__name__)

AT_ONCE: Final = 48
"""Calls at the same time: enough to hide the network, few enough for API priority and fairness."""

_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 20.0
_SCALE_ATTEMPTS: Final = 4
_MESSAGE: Final = 1024
_NAME: Final = 40


class ActionExecutor:
    """Carries out what was decided.

    Args:
        api: the API server.
        metrics: where failures and delays are counted.
        clock: the present time.
        failed: called with the action some time after it failed.
    """

    def __init__(
        self,
        api: Api,
        metrics: Metrics,
        clock: Callable[[], float],
        failed: Callable[[Action], None],
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._clock = clock
        self._failed = failed
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._failures: dict[str, int] = {}
        self._named_milliseconds = 0

    async def pin(self, action: Pin) -> None:
        """Pin one pod and open our gate."""
        view = action.view
        body = pin_patch(action, self._clock())
        if await self._try(action, self._patch(view, body)):
            self._failures.pop(view.uid, None)
            self._metrics.pin_seconds.observe(max(0.0, self._clock() - view.created_seconds))

    async def delete(self, action: DeletePod) -> None:
        """Delete one pod."""
        view = action.view
        await self._try(action, self._api.delete("pods", view.namespace, view.name, view.uid))

    async def set_cost(self, action: SetDeletionCost) -> None:
        """Set one pod's deletion cost."""
        view = action.view
        notes = {labels.POD_DELETION_COST: str(action.cost)}
        body: Json = {"metadata": {"uid": view.uid, "annotations": notes}}
        await self._try(action, self._patch(view, body))

    async def write_scale(self, action: WriteScale) -> None:
        """Create a Scale; asked again, under the same name, where nobody knows whether it was."""
        # No two have the same: one pass may ask for several, and "AlreadyExists" means our own.
        self._named_milliseconds = max(self._named_milliseconds + 1, int(self._clock() * 1000))
        name = f"{action.job[:_NAME].rstrip('-')}-data-{self._named_milliseconds:x}"
        for attempt in range(_SCALE_ATTEMPTS):
            try:
                body = scale_manifest(action, name)
                async with self._slots:
                    await self._api.submit(SCALE_PLURAL, action.namespace, body)
            except ApiRefusedError as error:
                if error.reason == "AlreadyExists":
                    return
                self._count(action, error)
                return
            except ApiUnavailableError as error:
                self._count(action, error)
                await asyncio.sleep(_FIRST_PAUSE_SECONDS * 2.0**attempt)
            else:
                return

    def _patch(self, view: PodView, body: Json) -> Awaitable[Json]:
        return self._api.patch("pods", view.namespace, view.name, body, strategic=True)

    async def _try(self, action: Pin | DeletePod | SetDeletionCost, call: Awaitable[Any]) -> bool:
        uid = action.view.uid
        try:
            async with self._slots:
                await call
        except ApiError as error:
            if error.code == 404:
                return False  # gone; the watch says so, too
            self._count(action, error)
            count = self._failures[uid] = self._failures.get(uid, 0) + 1
            pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(count - 1, 8), _LONGEST_PAUSE_SECONDS)
            if len(self._failures) > 10_000:
                self._failures.clear()
            await asyncio.sleep(pause)
            self._failed(action)
            return False
        return True

    def _count(self, action: Action, error: ApiError) -> None:
        what = type(action).__name__
        self._metrics.call_errors.labels(what, error.reason).inc()
        logger.warning("%s of %s: %s", what, _object_of(action), error)


def _object_of(action: Action) -> str:
    if isinstance(action, WriteScale):
        return f"{action.namespace}/{action.job}"
    return f"{action.view.namespace}/{action.view.name}"


def pin_patch(action: Pin, now: float) -> Json:
    """The one PATCH of gate and pin."""
    terms = pinned_terms(action.view.terms, action.node)
    required = {"nodeSelectorTerms": terms}
    return {
        "metadata": {
            "uid": action.view.uid,
            "annotations": {PINNED_NODE: action.node, PINNED_AT: f"{now:.3f}"},
        },
        "spec": {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            },
            "schedulingGates": [{"$patch": "delete", "name": labels.PLACEMENT_GATE}],
        },
    }


def scale_manifest(action: WriteScale, name: str) -> Json:
    """The Scale that carries a decision to the controller."""
    return {
        "apiVersion": API_VERSION,
        "kind": SCALE_KIND,
        "metadata": {
            "name": name,
            "namespace": action.namespace,
            "labels": {labels.JOB: action.job, labels.JOB_UID: action.job_uid},
        },
        "spec": {
            "jobRef": {"name": action.job, "uid": action.job_uid},
            "source": Source.SCHEDULER,
            "reason": action.reason,
            "message": action.message[:_MESSAGE],
            "roles": action.roles,
        },
    }
