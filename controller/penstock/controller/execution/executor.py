"""Carries out what `reconcile` decided about one job, and learns from the answers.

Actions go out in their order and the first failure ends the pass; only creations and deletions of
pods that stand side by side go out together, and so do the job's own objects. Every write that is
repeated after a crash is made harmless by its own name or condition: names are derived and an
existing object of ours is success, status writes carry a resourceVersion, deletions a uid.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from penstock.base import quantity
from penstock.base.enums import TRAINER_ROLE
from penstock.controller.execution.tokens import JobTokens
from penstock.controller.job_cache import JobCache
from penstock.controller.metrics import Metrics
from penstock.controller.reconcile.acceptance import template_path
from penstock.controller.reconcile.actions import (
    Action,
    AdoptScale,
    CheckTemplate,
    CreatePod,
    CreateScale,
    DeleteJob,
    DeletePod,
    DeleteScale,
    EnsureObject,
    FetchLog,
    LiftGate,
    PatchJobStatus,
    PatchScaleStatus,
    RecordEvent,
    RequeueAt,
    ResizePod,
)
from penstock.controller.reconcile.conditions import readable
from penstock.controller.reconcile.objects import TOKEN_KEY, object_key
from penstock.controller.reconcile.observed import Job, Refusal
from penstock.controller.reconcile.parsing import write_time
from penstock.controller.store import JobKey, Store
from penstock.crds import labels
from penstock.crds.group import API_VERSION, ELASTICJOB_KIND, ELASTICJOB_PLURAL, SCALE_PLURAL
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError

LOG_LINES: Final = 20
_AT_A_TIME: Final = 32
_FORBIDDEN: Final = 403
_INVALID: Final = frozenset({400, 413, 422})
_TOO_MANY_REQUESTS: Final = 429
_NOT_AS_SEEN: Final = frozenset({404, 409})
"""It is gone, or has changed since it was looked at."""

_PODS: Final = "pods"
_OBJECTS: Final = "objects"

Json = dict[str, Any]


class Executor:
    """The one place from which the controller writes to the cluster."""

    def __init__(
        self,
        api: Api,
        store: Store,
        tokens: JobTokens,
        metrics: Metrics,
        clock: Callable[[], datetime],
        identity: str,
    ) -> None:
        self._api = api
        self._tokens = tokens
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._identity = identity

    async def carry_out(self, key: JobKey, job: Job | None, memory: JobCache,
                        actions: Sequence[Action]) -> datetime | None:  # fmt: skip
        """Carry out the actions of one pass.

        Args:
            key: namespace and name of the job.
            job: the job; None for a Scale without one, whose actions need none.
            memory: what this process remembers of the job; brought up to date.
            actions: what to do.

        Returns:
            When to look at the job again, or None.

        Raises:
            ApiError: the first action that failed; those after it were not begun.
        """
        again: datetime | None = None
        for together, group in itertools.groupby(actions, key=_goes_together):
            batch = list(group)
            if together:
                await self._side_by_side(key, job, memory, batch)
                if together == _OBJECTS:
                    memory.objects_seen(self._clock())
                continue
            for action in batch:
                if isinstance(action, RequeueAt):
                    again = action.when
                else:
                    await self._one(key, job, memory, action)
        return again

    async def _side_by_side(
        self, key: JobKey, job: Job | None, memory: JobCache, batch: list[Action]
    ) -> None:
        for first in range(0, len(batch), _AT_A_TIME):
            some = batch[first : first + _AT_A_TIME]
            if len(some) == 1:
                await self._one(key, job, memory, some[0])
                continue
            results = await asyncio.gather(
                *(self._one(key, job, memory, action) for action in some), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _one(self, key: JobKey, job: Job | None, memory: JobCache, action: Action) -> None:
        namespace, name = key
        match action:
            case EnsureObject():
                await self._ensure(namespace, memory, action)
            case CreatePod():
                await self._create_pod(namespace, memory, action)
            case CheckTemplate():
                await self._check_template(namespace, memory, action)
            case DeletePod():
                await self._delete_pod(namespace, action)
            case ResizePod():
                await self._resize(namespace, memory, action)
            case LiftGate():
                await self._lift_gate(namespace, action)
            case CreateScale():
                await self._create_scale(namespace, action)
            case AdoptScale():
                await self._adopt_scale(key, action)
            case PatchJobStatus():
                await self._patch_job(key, memory, action)
            case PatchScaleStatus():
                await self._patch_scale(key, action)
            case DeleteScale():
                await self._delete(SCALE_PLURAL, namespace, action.name, action.uid)
                self._store.drop_scale(key, action.name, action.uid)
            case DeleteJob():
                await self._delete(ELASTICJOB_PLURAL, namespace, name, action.uid)
            case FetchLog():
                await self._fetch_log(namespace, memory, action)
            case RecordEvent():
                if job is not None:
                    await self._record(job, action)
            case RequeueAt():
                raise AssertionError("a pass has one RequeueAt, which carry_out takes")

    async def _ensure(self, namespace: str, memory: JobCache, action: EnsureObject) -> None:
        manifest = dict(action.manifest)
        shown = object_key(manifest)
        if action.needs_token:
            uid = manifest["metadata"]["ownerReferences"][0]["uid"]
            manifest["stringData"] = {TOKEN_KEY: await self._tokens.of(uid)}
        try:
            await self._api.submit(action.resource, namespace, manifest)
        except ApiRefusedError as error:
            if error.reason == "AlreadyExists" and await self._is_ours(
                action.resource, namespace, manifest
            ):
                memory.created(shown)
                return
            memory.refusals[shown] = Refusal(error.code, shown, str(error))
            raise
        memory.created(shown)

    async def _is_ours(self, resource: str, namespace: str, manifest: Json) -> bool:
        """Whether the object in the way is the very one that was to be made."""
        wanted = manifest["metadata"]
        found = await self._api.get(resource, namespace, wanted["name"])
        owners = found["metadata"].get("ownerReferences") or ()
        uid = wanted["ownerReferences"][0]["uid"]
        return any(owner.get("uid") == uid for owner in owners)

    async def _create_pod(self, namespace: str, memory: JobCache, action: CreatePod) -> None:
        name = action.manifest["metadata"]["name"]
        memory.creating(action.reservation)
        try:
            created = await self._api.create("pods", namespace, action.manifest)
        except ApiRefusedError as error:
            if error.reason == "AlreadyExists":
                created = await self._existing_pod(namespace, memory, action, error)
            else:
                refusal = Refusal(error.code, f"Pod {name}", str(error))
                memory.not_created(action.reservation, name, refusal)
                if action.role == TRAINER_ROLE and error.code == _FORBIDDEN:
                    memory.objects_seen_at = None  # its ServiceAccount may be gone
                raise
        else:
            self._metrics.pods_created.labels(action.role).inc()
        memory.created(name, action.role)
        self._store.put_pod(created, own=True)

    async def _existing_pod(
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

    async def _check_template(
        self, namespace: str, memory: JobCache, action: CheckTemplate
    ) -> None:
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

    async def _delete_pod(self, namespace: str, action: DeletePod) -> None:
        try:
            gone = await self._api.delete("pods", namespace, action.name, action.uid)
        except ApiRefusedError as error:
            if error.code not in _NOT_AS_SEEN:  # it is gone, or another pod has its name
                raise
            return
        self._metrics.pods_deleted.inc()
        if "deletionTimestamp" in gone.get("metadata", {}):
            self._store.put_pod(gone, own=True)

    async def _resize(self, namespace: str, memory: JobCache, action: ResizePod) -> None:
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
            memory.unresizable.add(action.uid)  # it is replaced instead
            return
        self._store.put_pod(resized, own=True)

    async def _lift_gate(self, namespace: str, action: LiftGate) -> None:
        body = {
            "metadata": {"uid": action.uid},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": labels.PLACEMENT_GATE}]},
        }
        try:
            lifted = await self._api.patch("pods", namespace, action.name, body, strategic=True)
        except ApiRefusedError as error:
            if error.code not in _NOT_AS_SEEN:
                raise
            return
        self._store.put_pod(lifted, own=True)

    async def _create_scale(self, namespace: str, action: CreateScale) -> None:
        try:
            created = await self._api.create(SCALE_PLURAL, namespace, action.manifest)
        except ApiRefusedError as error:
            if error.reason != "AlreadyExists":
                raise
            name = action.manifest["metadata"]["name"]
            created = await self._api.get(SCALE_PLURAL, namespace, name)
        self._store.put_scale(created)

    async def _adopt_scale(self, key: JobKey, action: AdoptScale) -> None:
        """After the writes of its status in the same pass, and so on their resourceVersion."""
        known = next((one for one in self._store.scales(key) if one.uid == action.uid), None)
        if known is None:
            return
        body = {
            "metadata": {
                "uid": action.uid,
                "resourceVersion": known.resource_version,
                "ownerReferences": list(action.owners),
            }
        }
        try:
            written = await self._api.patch(SCALE_PLURAL, key[0], action.name, body)
        except ApiRefusedError as error:
            if error.code in _NOT_AS_SEEN:
                await self._refresh_scale(key, action.name, action.uid)
            raise
        self._store.put_scale(written)

    async def _patch_job(self, key: JobKey, memory: JobCache, action: PatchJobStatus) -> None:
        namespace, name = key
        body = {"metadata": {"resourceVersion": action.resource_version}, **action.patch}
        try:
            written = await self._api.patch(
                ELASTICJOB_PLURAL, namespace, name, body, subresource="status"
            )
        except ApiRefusedError as error:
            if error.code in _NOT_AS_SEEN:
                await self._refresh_job(key)
            raise
        memory.status_written(action.reserves, self._clock())
        self._store.put_job(written)

    async def _refresh_job(self, key: JobKey) -> None:
        """What was written to is not what is there: look, instead of waiting for an event."""
        try:
            self._store.put_job(await self._api.get(ELASTICJOB_PLURAL, *key))
        except ApiRefusedError as error:
            known = self._store.job(key)
            if error.code == 404 and known is not None:
                self._store.drop_job(key, known.uid)

    async def _patch_scale(self, key: JobKey, action: PatchScaleStatus) -> None:
        namespace = key[0]
        body = {
            "metadata": {"resourceVersion": action.resource_version, "uid": action.uid},
            **action.patch,
        }
        try:
            written = await self._api.patch(
                SCALE_PLURAL, namespace, action.name, body, subresource="status"
            )
        except ApiRefusedError as error:
            if error.code in _NOT_AS_SEEN:
                await self._refresh_scale(key, action.name, action.uid)
            raise
        self._store.put_scale(written)

    async def _refresh_scale(self, key: JobKey, name: str, uid: str) -> None:
        try:
            self._store.put_scale(await self._api.get(SCALE_PLURAL, key[0], name))
        except ApiRefusedError as error:
            if error.code == 404:
                self._store.drop_scale(key, name, uid)

    async def _delete(self, resource: str, namespace: str, name: str, uid: str) -> None:
        try:
            await self._api.delete(resource, namespace, name, uid)
        except ApiRefusedError as error:
            if error.code not in _NOT_AS_SEEN:
                raise

    async def _fetch_log(self, namespace: str, memory: JobCache, action: FetchLog) -> None:
        try:
            text = await self._api.log(namespace, action.pod, action.container, LOG_LINES)
        except ApiRefusedError:
            text = ""  # the log is gone with its node, or may not be read: fail without it
        memory.logs[action.uid] = text

    async def _record(self, job: Job, action: RecordEvent) -> None:
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


def _goes_together(action: Action) -> str:
    """What the action may be carried out beside, or "": neighbours of one kind go together."""
    if isinstance(action, CreatePod | DeletePod):
        return _PODS
    return _OBJECTS if isinstance(action, EnsureObject) else ""
