"""Carries out what `reconcile` decided about one job, and learns from the answers.

Actions go out in their order and the first failure ends the pass; only creations and deletions of
pods that stand side by side go out together, and so do those of the job's own objects of which
none needs another. Every write that is
repeated after a crash is made harmless by its own name or condition: names are derived and an
existing object of ours is success, status writes carry a resourceVersion, deletions a uid.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from penstock.controller.execution.event_recorder import EventRecorder
from penstock.controller.execution.pod_writer import PodWriter
from penstock.controller.execution.resource_writer import ResourceWriter
from penstock.controller.execution.shared_objects import SharedObjects
from penstock.controller.execution.tokens import JobTokens
from penstock.controller.job_cache import JobCache
from penstock.controller.metrics import Metrics
from penstock.controller.reconcile.model.actions import (
    Action,
    AdoptScale,
    CheckTemplate,
    CreatePod,
    CreateScale,
    DeleteJob,
    DeletePod,
    DeleteScale,
    EnsureObject,
    EnsurePodGroup,
    EnsureShared,
    FetchLog,
    LiftGate,
    PatchJobStatus,
    PatchScaleStatus,
    RecordEvent,
    RequeueAt,
    ResizePod,
)
from penstock.controller.reconcile.model.objects import SHARE_TOKEN_KEY, TOKEN_KEY, object_key
from penstock.controller.reconcile.model.observed import Job, Refusal
from penstock.controller.store import JobKey, Store
from penstock.crds.events import EventReason
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError

_AT_A_TIME: Final = 32
_NO_GROUPS: Final = frozenset({400, 403, 404, 422})
"""What an API server answers that does not know a kind of group, or lets nobody make one."""
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
        self._clock = clock
        self._pods = PodWriter(api, store, metrics)
        self._shared = SharedObjects(api)
        self._resources = ResourceWriter(api, store, clock)
        self._events = EventRecorder(api, metrics, clock, identity)

    async def carry_out(
        self, key: JobKey, job: Job | None, memory: JobCache, actions: Sequence[Action]
    ) -> datetime | None:
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
        namespace = key[0]
        match action:
            case EnsureObject():
                await self._ensure(namespace, memory, action)
            case EnsureShared():
                await self._take_part(namespace, job, memory, action)
            case EnsurePodGroup():
                memory.gang_refusal = await self._make_group(namespace, action)
            case CreatePod():
                news = await self._pods.create(namespace, memory, action)
                if job is not None:
                    for told in news:
                        await self._events.record(job, told)
            case CheckTemplate():
                await self._pods.check_template(namespace, memory, action)
            case DeletePod():
                await self._pods.delete(namespace, action)
            case ResizePod():
                await self._pods.resize(namespace, memory, action)
            case LiftGate():
                await self._pods.lift_gate(namespace, action)
            case CreateScale():
                await self._resources.create_scale(namespace, action)
            case AdoptScale():
                await self._resources.adopt_scale(key, action)
            case PatchJobStatus():
                await self._resources.patch_job(key, memory, action)
            case PatchScaleStatus():
                await self._resources.patch_scale(key, action)
            case DeleteScale():
                await self._resources.delete_scale(key, action)
            case DeleteJob():
                await self._resources.delete_job(key, action)
            case FetchLog():
                await self._pods.fetch_log(namespace, memory, action)
            case RecordEvent():
                if job is not None:
                    await self._events.record(job, action)
            case RequeueAt():
                raise AssertionError("a pass has one RequeueAt, which carry_out takes")

    async def _ensure(self, namespace: str, memory: JobCache, action: EnsureObject) -> None:
        manifest = dict(action.manifest)
        shown = object_key(manifest)
        if action.needs_token:
            uid = manifest["metadata"]["ownerReferences"][0]["uid"]
            manifest["stringData"] = {TOKEN_KEY: await self._tokens.of(uid)}
            if action.share_group:
                token = await self._tokens.of_group(namespace, action.share_group)
                manifest["stringData"][SHARE_TOKEN_KEY] = token
        try:
            await self._api.submit(action.resource, namespace, manifest)
        except ApiRefusedError as error:
            if error.reason == "AlreadyExists" and await self._is_ours(
                action.resource, namespace, manifest
            ):
                memory.created(shown)
                return
            memory.record_refusal(shown, Refusal(error.code, shown, str(error)))
            raise
        memory.created(shown)

    async def _make_group(self, namespace: str, action: EnsurePodGroup) -> Refusal | None:
        """Why there is no group of the job's, where that is not only for now."""
        shown = object_key(action.manifest)
        try:
            await self._api.submit(action.resource, namespace, action.manifest)
        except ApiRefusedError as error:
            if error.reason == "AlreadyExists":
                if await self._is_ours(action.resource, namespace, dict(action.manifest)):
                    return None
                return Refusal(error.code, shown, f"{shown} is somebody else's")
            if error.code in _NO_GROUPS:
                return Refusal(error.code, shown, str(error))
            raise
        return None

    async def _take_part(
        self, namespace: str, job: Job | None, memory: JobCache, action: EnsureShared
    ) -> None:
        """An object that is somebody else's is told once, and holds nothing up."""
        shown = object_key(action.manifest)
        refusal = await self._shared.ensure(namespace, action)
        if refusal is None:
            memory.created(shown)
            return
        news = memory.refusals.get(shown) != refusal
        memory.record_refusal(shown, refusal)
        if news and job is not None:
            text = f"{refusal.message}: the job shares nothing; delete it and make a new job"
            await self._events.record(job, RecordEvent(EventReason.NOT_SHARED, text[:1024]))

    async def _is_ours(self, resource: str, namespace: str, manifest: Json) -> bool:
        """Whether the object in the way is the very one that was to be made."""
        wanted = manifest["metadata"]
        found = await self._api.get(resource, namespace, wanted["name"])
        owners = found["metadata"].get("ownerReferences") or ()
        uid = wanted["ownerReferences"][0]["uid"]
        return any(owner.get("uid") == uid for owner in owners)


def _goes_together(action: Action) -> str:
    """What the action may be carried out beside, or "": neighbours of one kind go together."""
    if isinstance(action, CreatePod | DeletePod):
        return _PODS
    return _OBJECTS if isinstance(action, EnsureObject) and not action.needed_by_others else ""
