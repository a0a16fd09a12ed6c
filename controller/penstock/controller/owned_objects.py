"""Which jobs have lost one of their own objects: looked for now and then, at a bounded cost.

Nothing tells the controller when somebody deletes a job's Service: no pod changes, though new
connections to the trainer fail from then on. Services, ServiceAccounts, Roles and RoleBindings are
listed, metadata only, one call for every five hundred jobs. Secrets are not: the right to list them
would open those of everybody, so a few are read by name, each job's in its turn. A pod that cannot
start for want of its Secret has the controller look at once (`pod_changes.needs_objects`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from penstock.controller.reconcile.model.objects import job_objects
from penstock.controller.reconcile.model.observed import Job
from penstock.controller.reconcile.model.share_group import group_objects
from penstock.controller.store import JobKey
from penstock.crds import labels
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError

SECRETS_AT_A_TIME: Final = 30
_LISTED: Final = ("services", "serviceaccounts", "roles", "rolebindings")


class OwnedObjects:
    """Looks for what is missing.

    Args:
        api: the API server.
        namespace: the one namespace to look in; None: all.
    """

    def __init__(self, api: Api, namespace: str | None) -> None:
        self._api = api
        self._namespace = namespace
        self._last: JobKey = ("", "")

    async def find_missing(self, jobs: Mapping[JobKey, Job]) -> set[JobKey]:
        """Of the jobs that should have all their objects, those that do not.

        Raises:
            ApiError: nothing is known of any.
        """
        if not jobs:
            return set()
        present: set[tuple[str, str, str]] = set()
        lists = [(resource, labels.JOB_UID) for resource in _LISTED]
        if any(group_objects(job) for job in jobs.values()):
            lists.append(("services", labels.SHARE_GROUP))
        for resource, selector in lists:
            page = await self._api.list(resource, self._namespace, selector, metadata_only=True)
            present.update(
                (resource, item["metadata"]["name"], owner.get("uid", ""))
                for item in page.items
                for owner in item["metadata"].get("ownerReferences") or ()
            )
        missing = {
            key
            for key, job in jobs.items()
            for resource, name in _names(job)
            if resource in _LISTED and (resource, name, job.uid) not in present
        }
        for key in self._next(jobs):
            if not await self._has_secret(jobs[key]):
                missing.add(key)
        return missing

    def _next(self, jobs: Mapping[JobKey, Job]) -> list[JobKey]:
        """The jobs whose turn it is."""
        keys = sorted(jobs)
        first = bisect_right(keys, self._last)
        turn = [*keys[first:], *keys[:first]][:SECRETS_AT_A_TIME]
        self._last = turn[-1]
        return turn

    async def _has_secret(self, job: Job) -> bool:
        secret = next(one for one in job_objects(job) if one.resource == "secrets")
        name = secret.manifest["metadata"]["name"]
        try:
            found = await self._api.get("secrets", job.namespace, name, metadata_only=True)
        except ApiRefusedError as error:
            if error.code != 404:
                raise
            return False
        owners = found["metadata"].get("ownerReferences") or ()
        return any(owner.get("uid") == job.uid for owner in owners)


def _names(job: Job) -> list[tuple[str, str]]:
    """Kind and name of all that the job owns, alone or with others."""
    alone = [(one.resource, one.manifest["metadata"]["name"]) for one in job_objects(job)]
    return alone + [(one.resource, one.manifest["metadata"]["name"]) for one in group_objects(job)]
