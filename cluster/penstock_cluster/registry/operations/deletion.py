"""Deleting: at once, marked and held by finalizers, or gracefully over a time.

What DELETE does depends on the kind (pods have a grace period; namespaces and CRDs are emptied
first), on finalizers and on the propagation policy, which is itself written down as a finalizer
for the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock_cluster.registry.admission.request import AdmissionRequest
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.errors import ApiError, Json
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Version
from penstock_cluster.registry.operations.writing import Writer


@dataclass(frozen=True, slots=True)
class Preconditions:
    uid: str | None = None
    resource_version: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete; ``propagation`` is Background, Foreground, Orphan or empty (the default)."""

    grace_seconds: int | None = None
    propagation: str = ""
    preconditions: Preconditions = Preconditions()


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a deletion came to: ``gone``, or marked and waiting."""

    version: Version
    gone: bool


class Deletion:
    """Deletes objects with a :class:`Writer`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions, call: Call
    ) -> Deleted:
        current = self._writer.get(resource, namespace, name)
        self._check_preconditions(resource, current, options.preconditions)
        self._writer.admit(AdmissionRequest(resource, "DELETE", "", None, current.object, call))
        hook = self._writer.deletion_hooks.get(resource.storage)
        if hook is not None:
            return self._delete_by_hook(resource, current, hook, call)
        return self._delete(resource, current, options, call)

    def _check_preconditions(
        self, resource: Resource, current: Version, wanted: Preconditions
    ) -> None:
        name = current.key[1]
        if wanted.uid is not None and wanted.uid != current.uid:
            why = (
                f"the UID in the precondition ({wanted.uid}) does not match the UID in record "
                f"({current.uid}). The object might have been deleted and then recreated"
            )
            raise errors.conflict(resource.name, name, why, kind=True)
        version = wanted.resource_version
        if version is not None and version != str(current.number):
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the "
                f"ResourceVersion in record ({current.number}). The object might have been modified"
            )
            raise errors.conflict(resource.name, name, why, kind=True)

    def _delete_by_hook(
        self, resource: Resource, current: Version, hook: Callable[[Json, Call], Json], call: Call
    ) -> Deleted:
        if "deletionTimestamp" in current.object["metadata"]:
            return Deleted(current, gone=False)
        new = hook(current.object, call)
        version = self._writer.settle(resource, current, new, current.managed, call)
        return Deleted(version, gone=version.number == 0 and not call.dry_run)

    def _delete(
        self, resource: Resource, current: Version, options: DeleteOptions, call: Call
    ) -> Deleted:
        old = self._writer.stored_form(resource, current)
        metadata = old["metadata"]
        marked = "deletionTimestamp" in metadata
        grace = resource.strategy.grace_seconds(old, options.grace_seconds)
        finalizers = _deletion_finalizers(metadata.get("finalizers") or [], options.propagation)
        table = self._writer.store.table(resource.storage)
        if grace is None:
            if not finalizers:
                return self._remove(resource, current, call)
            if marked and finalizers == metadata.get("finalizers"):
                return Deleted(current, gone=False)
        elif marked:
            left = metadata.get("deletionGracePeriodSeconds", 0)
            if grace >= left and left > 0:
                return Deleted(current, gone=False)
            if grace > left:
                return Deleted(current, gone=False)
        changed = dict(metadata)
        if not marked:
            if "generation" in changed:
                changed["generation"] += 1
            changed["deletionTimestamp"] = later(call.now, grace or 0)
            changed["deletionGracePeriodSeconds"] = grace or 0
        elif grace is not None:
            left = metadata.get("deletionGracePeriodSeconds", 0)
            changed["deletionTimestamp"] = later(metadata["deletionTimestamp"], grace - left)
            changed["deletionGracePeriodSeconds"] = grace
        if finalizers:
            changed["finalizers"] = finalizers
        else:
            changed.pop("finalizers", None)
        new = {**old, "metadata": changed}
        if call.dry_run:
            return Deleted(Version(current.key, 0, new, current.managed), gone=False)
        version = current
        if changed != metadata:
            version = self._writer.store.put(table, current.key, new, current.managed)
        if grace == 0 and not finalizers:
            return Deleted(self._writer.store.remove(table, current.key), gone=True)
        return Deleted(version, gone=False)

    def _remove(self, resource: Resource, current: Version, call: Call) -> Deleted:
        if call.dry_run:
            return Deleted(current, gone=True)
        table = self._writer.store.table(resource.storage)
        return Deleted(self._writer.store.remove(table, current.key), gone=True)

    def delete_collection(
        self,
        resource: Resource,
        versions: Iterable[Version],
        options: DeleteOptions,
        call: Call,
    ) -> list[Version]:
        """Delete each of ``versions``; they are the answer, as they were before."""
        found = list(versions)
        for version in found:
            try:
                self.delete(resource, version.key[0], version.key[1], options, call)
            except ApiError as error:
                if not error.is_not_found:
                    raise
        return found


def _deletion_finalizers(present: list[str], propagation: str) -> list[str]:
    kept = [name for name in present if name not in ("foregroundDeletion", "orphan")]
    if propagation == "Foreground":
        return [*kept, "foregroundDeletion"]
    if propagation == "Orphan":
        return [*kept, "orphan"]
    if propagation == "Background":
        return kept
    return list(present)


def later(moment: str, seconds: int) -> str:
    """``moment`` (RFC 3339, whole seconds, UTC) moved by ``seconds``."""
    if not seconds:
        return moment
    moved = datetime.fromisoformat(moment) + timedelta(seconds=seconds)
    return moved.strftime("%Y-%m-%dT%H:%M:%SZ")
