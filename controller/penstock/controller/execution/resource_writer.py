"""What the controller does to ElasticJobs and Scales: writes their statuses, makes and ends them.

A status is written on the resourceVersion on which it was decided. Where that is not what is there,
the object is read again at once, instead of waiting for an event.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from penstock.controller.job_cache import JobCache
from penstock.controller.reconcile.model.actions import (
    AdoptScale,
    CreateScale,
    DeleteJob,
    DeleteScale,
    PatchJobStatus,
    PatchScaleStatus,
)
from penstock.controller.store import JobKey, Store
from penstock.crds.group import ELASTICJOB_PLURAL, SCALE_PLURAL
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError


class ResourceWriter:
    """Writes ElasticJobs and Scales; what the server answers goes into the store."""

    def __init__(self, api: Api, store: Store, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._store = store
        self._clock = clock

    async def create_scale(self, namespace: str, action: CreateScale) -> None:
        """Create a Scale; the one of before a crash counts."""
        try:
            created = await self._api.create(SCALE_PLURAL, namespace, action.manifest)
        except ApiRefusedError as error:
            if error.reason != "AlreadyExists":
                raise
            name = action.manifest["metadata"]["name"]
            created = await self._api.get(SCALE_PLURAL, namespace, name)
        self._store.put_scale(created)

    async def adopt_scale(self, key: JobKey, action: AdoptScale) -> None:
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
            if error.not_as_seen:
                await self._refresh_scale(key, action.name, action.uid)
            raise
        self._store.put_scale(written)

    async def patch_job(self, key: JobKey, memory: JobCache, action: PatchJobStatus) -> None:
        """Write the status of an ElasticJob that is still as it was seen."""
        namespace, name = key
        body = {"metadata": {"resourceVersion": action.resource_version}, **action.patch}
        try:
            written = await self._api.patch(
                ELASTICJOB_PLURAL, namespace, name, body, subresource="status"
            )
        except ApiRefusedError as error:
            if error.not_as_seen:
                await self._refresh_job(key)
            raise
        memory.status_written(action.reserves, self._clock())
        self._store.put_job(written, own=action.final)

    async def _refresh_job(self, key: JobKey) -> None:
        """What was written to is not what is there: look, instead of waiting for an event."""
        try:
            self._store.put_job(await self._api.get(ELASTICJOB_PLURAL, *key))
        except ApiRefusedError as error:
            known = self._store.job(key)
            if error.code == 404 and known is not None:
                self._store.drop_job(key, known.uid)

    async def patch_scale(self, key: JobKey, action: PatchScaleStatus) -> None:
        """Write the status of a Scale that is still as it was seen."""
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
            if error.not_as_seen:
                await self._refresh_scale(key, action.name, action.uid)
            raise
        self._store.put_scale(written)

    async def _refresh_scale(self, key: JobKey, name: str, uid: str) -> None:
        try:
            self._store.put_scale(await self._api.get(SCALE_PLURAL, key[0], name))
        except ApiRefusedError as error:
            if error.code == 404:
                self._store.drop_scale(key, name, uid)

    async def delete_scale(self, key: JobKey, action: DeleteScale) -> None:
        """Delete a Scale that is still the one that was seen."""
        await self._delete(SCALE_PLURAL, key[0], action.name, action.uid)
        self._store.drop_scale(key, action.name, action.uid)

    async def delete_job(self, key: JobKey, action: DeleteJob) -> None:
        """Delete an ElasticJob that is still the one that was seen."""
        namespace, name = key
        await self._delete(ELASTICJOB_PLURAL, namespace, name, action.uid)

    async def _delete(self, resource: str, namespace: str, name: str, uid: str) -> None:
        try:
            await self._api.delete(resource, namespace, name, uid)
        except ApiRefusedError as error:
            if not error.not_as_seen:
                raise
