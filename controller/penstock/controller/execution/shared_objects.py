"""Writes what several jobs own together: the Service of a share group.

It is made by whichever member comes first. A later one looks at what is there before it takes part
in it, since a name is all that a member's and a stranger's object have in common: it has to lead to
the group's trainers. To add oneself to the owners is one patch, merged by uid on the server:
members that come at the same time do not take each other out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.controller.reconcile.model.actions import EnsureShared
from penstock.controller.reconcile.model.objects import object_key
from penstock.controller.reconcile.model.observed import Refusal
from penstock.crds import labels
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError

_TRIES: Final = 3
_LEADS_TO: Final = ("clusterIP", "publishNotReadyAddresses", "selector")


class SharedObjects:
    """Makes, or takes part in, what share groups have."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def ensure(self, namespace: str, action: EnsureShared) -> Refusal | None:
        """See that the object is there and owned by the job.

        Returns:
            What is wrong with one of that name that is not the group's; None: it is.

        Raises:
            ApiError: it could be neither made nor looked at.
        """
        manifest = action.manifest
        name = manifest["metadata"]["name"]
        for _ in range(_TRIES):
            try:
                await self._api.submit(action.resource, namespace, manifest)
            except ApiRefusedError as error:
                if error.reason != "AlreadyExists":
                    raise
            else:
                return None
            try:
                found = await self._api.get(action.resource, namespace, name)
                if (why := _foreign(found, manifest)) is not None:
                    shown = object_key(manifest)
                    return Refusal(409, shown, f"{shown} in {namespace}: {why}")
                if not found["metadata"].get("deletionTimestamp"):
                    await self._own(action.resource, namespace, found, manifest)
                    return None
            except ApiRefusedError as error:
                if error.code != 404:  # else its last owner went at this moment
                    raise
        text = f"{action.resource} {namespace}/{name} is on its way out: it is made again then"
        raise ApiRefusedError(text, code=409, reason="Terminating")

    async def _own(
        self, resource: str, namespace: str, found: Mapping[str, Any], manifest: Mapping[str, Any]
    ) -> None:
        metadata, wanted = found["metadata"], manifest["metadata"]["ownerReferences"]
        present = {owner.get("uid") for owner in metadata.get("ownerReferences") or ()}
        if all(owner["uid"] in present for owner in wanted):
            return
        body = {"metadata": {"uid": metadata["uid"], "ownerReferences": wanted}}
        await self._api.patch(resource, namespace, metadata["name"], body, strategic=True)


def _foreign(found: Mapping[str, Any], manifest: Mapping[str, Any]) -> str | None:
    """Why an object is not the group's; None where it is."""
    wanted = manifest["metadata"]["labels"]
    said = found["metadata"].get("labels") or {}
    if any(said.get(key) != value for key, value in wanted.items()):
        return (
            f"it was not made by the controller (labels {labels.MANAGED_BY}, {labels.SHARE_GROUP})"
        )
    spec, present = manifest["spec"], found.get("spec") or {}
    for field in _LEADS_TO:
        if present.get(field) != spec[field]:
            return f"spec.{field} is {present.get(field)!r} and has to be {spec[field]!r}"
    return None
