"""What the controller does to pods: makes, checks, resizes, releases and deletes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.base import quantity
from penstock.base.enums import TRAINER_ROLE
from penstock.controller.job_cache import JobCache
from penstock.controller.metrics import Metrics
from penstock.controller.reconcile.desired import cache, snapshots
from penstock.controller.reconcile.model.actions import (
    CheckTemplate,
    CreatePod,
    DeletePod,
    FetchLog,
    LiftGate,
    RecordEvent,
    ResizePod,
)
from penstock.controller.reconcile.model.observed import Refusal
from penstock.controller.reconcile.scales.acceptance import template_path
from penstock.controller.store import Store
from penstock.crds import labels
from penstock.crds.events import EventReason
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError

LOG_LINES: Final = 20
_FORBIDDEN: Final = 403
_QUOTA: Final = " quota: "
"""In what the API server says of a pod for which a quota leaves no room."""
_NO_ROOM: Final = "no memory is added for snapshots, the job runs without them"
_NO_CACHE: Final = "the node's file cache is not mounted, the job runs without it"
_INVALID: Final = frozenset({400, 413, 422})
_TOO_MANY_REQUESTS: Final = 429

Json = dict[str, Any]


class PodWriter:
    """Writes pods; what the server answers goes into the store and the job's cache."""

    def __init__(self, api: Api, store: Store, metrics: Metrics) -> None:
        self._api = api
        self._store = store
        self._metrics = metrics

    async def create(
        self, namespace: str, memory: JobCache, action: CreatePod
    ) -> list[RecordEvent]:
        """Create a pod; the one of before a crash counts.

        Returns:
            What it is made without and why, where that is news.
        """
        name = action.manifest["metadata"]["name"]
        memory.creating(action.reservation)
        news: list[RecordEvent] = []
        try:
            created, news = await self._create(namespace, memory, action.manifest)
        except ApiRefusedError as error:
            if error.reason == "AlreadyExists":
                created = await self._existing(namespace, memory, action, error)
            else:
                refusal = Refusal(error.code, f"Pod {name}", str(error))
                memory.not_created(action.reservation, name, refusal)
                if action.role == TRAINER_ROLE and error.code == _FORBIDDEN:
                    memory.doubt_objects()  # its ServiceAccount may be gone
                raise
        else:
            self._metrics.pods_created.labels(action.role).inc()
        memory.created(name, action.role)
        self._store.put_pod(created, own=True)
        return news

    async def _create(
        self, namespace: str, memory: JobCache, manifest: Mapping[str, Any]
    ) -> tuple[Json, list[RecordEvent]]:
        """The pod; and why without what the server forbids, which only its answer can tell."""
        try:
            return await self._api.create("pods", namespace, manifest), []
        except ApiRefusedError as error:
            if error.code != _FORBIDDEN:
                raise
            why = str(error)
            if (plain := snapshots.without_room(manifest)) is not None:
                reason, text = EventReason.SNAPSHOTS_REDUCED, _NO_ROOM
                is_news = memory.snapshots_are_refused
            elif _QUOTA not in why and (plain := cache.without_socket(manifest)) is not None:
                reason, text = EventReason.CACHE_NOT_MOUNTED, _NO_CACHE
                is_news = memory.cache_is_refused
            else:
                raise
        created, news = await self._create(namespace, memory, plain)  # else: not the reason
        if is_news():
            news = [RecordEvent(reason, f"{text}: {why}"[:1024]), *news]
        return created, news

    async def _existing(
        self, namespace: str, memory: JobCache, action: CreatePod, error: ApiRefusedError
    ) -> Json:
        metadata = action.manifest["metadata"]
        found = await self._api.get("pods", namespace, metadata["name"])
        tags = found["metadata"].get("labels") or {}
        ours = all(
            tags.get(label) == metadata["labels"][label]
            for label in (labels.JOB_UID, labels.ROLE, labels.RANK, labels.INCARNATION)
        )
        if ours:
            return found
        refusal = Refusal(error.code, f"Pod {metadata['name']}", str(error))
        memory.not_created(action.reservation, metadata["name"], refusal)
        raise error

    async def check_template(self, namespace: str, memory: JobCache, action: CheckTemplate) -> None:
        """Any answer but "invalid" counts as a yes: what else is in the way may go in time."""
        refusal: Refusal | None = None
        try:
            await self._api.check("pods", namespace, action.manifest)
        except ApiRefusedError as error:
            if error.code == _TOO_MANY_REQUESTS:
                raise
            if error.code in _INVALID and "dry run" not in str(error):
                refusal = Refusal(error.code, template_path(action.role), str(error))
        memory.template_checked(action.role, action.template, refusal)

    async def delete(self, namespace: str, action: DeletePod) -> None:
        """Delete a pod that is still the one that was seen."""
        try:
            gone = await self._api.delete("pods", namespace, action.name, action.uid)
        except ApiRefusedError as error:
            if not error.not_as_seen:  # it is gone, or another pod has its name
                raise
            return
        self._metrics.pods_deleted.inc()
        if "deletionTimestamp" in gone.get("metadata", {}):
            self._store.put_pod(gone, own=True)

    async def resize(self, namespace: str, memory: JobCache, action: ResizePod) -> None:
        """Resize a running pod; one that its node does not resize is replaced later."""
        wanted: dict[str, str] = {}
        if action.cpu_milli is not None:
            wanted["cpu"] = quantity.format_milli_cpu(action.cpu_milli)
        if action.memory_bytes is not None:
            wanted["memory"] = quantity.format_bytes(action.memory_bytes)
        container = {
            "name": action.container,
            "resources": {"requests": wanted, "limits": wanted},
        }
        body = {"metadata": {"uid": action.uid}, "spec": {"containers": [container]}}
        try:
            resized = await self._api.patch(
                "pods", namespace, action.name, body, subresource="resize", strategic=True
            )
        except ApiRefusedError as error:
            if error.code == _TOO_MANY_REQUESTS:
                raise
            memory.record_unresizable(action.uid)
            return
        self._store.put_pod(resized, own=True)

    async def lift_gate(self, namespace: str, action: LiftGate) -> None:
        """Let a gated pod be scheduled."""
        body = {
            "metadata": {"uid": action.uid},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": labels.PLACEMENT_GATE}]},
        }
        try:
            lifted = await self._api.patch("pods", namespace, action.name, body, strategic=True)
        except ApiRefusedError as error:
            if not error.not_as_seen:
                raise
            return
        self._store.put_pod(lifted, own=True)

    async def fetch_log(self, namespace: str, memory: JobCache, action: FetchLog) -> None:
        """Read the end of a container's log."""
        try:
            text = await self._api.log(namespace, action.pod, action.container, LOG_LINES)
        except ApiRefusedError:
            text = ""  # the log is gone with its node, or may not be read: fail without it
        memory.record_log(action.uid, text)
