"""Garbage collection by owner references: Background, Foreground and Orphan.

Works on what is in the store, one queued object at a time. An object whose owners are all gone is
deleted; an owner that waits in the foreground goes when no dependent blocks it; an owner that
orphans loses its dependents' references first. Whether an owner of a kind that is not served is
gone nobody can know: until it is served, its dependents stay.
"""

from __future__ import annotations

from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Change, Key, Table, Version
from penstock_cluster.registry.objects.workqueue import WorkQueue
from penstock_cluster.registry.operations.deletion import DeleteOptions, Preconditions
from penstock_cluster.registry.operations.storage import Storage

_CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_FOREGROUND = "foregroundDeletion"
_ORPHAN = "orphan"
_Item = tuple[str, "Key"]


class GarbageCollector:
    """Follows all tables; keeps who owns whom by uid."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._dependents: dict[str, set[_Item]] = {}
        self._present: dict[str, _Item] = {}
        self._owners_of: dict[_Item, tuple[str, ...]] = {}
        #: Owners that were seen to go, by uid, while they have dependents.
        self._gone: set[str] = set()
        #: What has owners of kinds that are not served.
        self._undecided: set[_Item] = set()
        self._queue: WorkQueue[_Item] = WorkQueue("garbage collector", self._look_at)

    def start(self) -> None:
        self._queue.start()
        store = self._storage.store
        for table in store.tables():
            for version in table.items.values():
                self._note(table, version)
                self._queue.add((table.name, version.key))
        store.listeners.append(self._on_change)

    def stop(self) -> None:
        self._queue.stop()

    def _note(self, table: Table, version: Version) -> None:
        item = (table.name, version.key)
        self._present[version.uid] = item
        references = version.object["metadata"].get("ownerReferences") or ()
        owners = tuple(reference["uid"] for reference in references)
        before = self._owners_of.get(item, ())
        if owners == before:
            return
        for uid in before:
            self._part(item, uid)
        for uid in owners:
            self._dependents.setdefault(uid, set()).add(item)
        if owners:
            self._owners_of[item] = owners
        else:
            self._owners_of.pop(item, None)

    def _part(self, item: _Item, uid: str) -> None:
        """An object depends on an owner no longer."""
        found = self._dependents.get(uid, set())
        found.discard(item)
        if not found:
            self._dependents.pop(uid, None)
            self._gone.discard(uid)

    def _forget(self, table: Table, version: Version) -> None:
        item = (table.name, version.key)
        self._undecided.discard(item)
        if self._present.get(version.uid) == item:
            del self._present[version.uid]
        if version.uid in self._dependents:
            self._gone.add(version.uid)
        for uid in self._owners_of.pop(item, ()):
            self._part(item, uid)
            owner = self._present.get(uid)
            if owner is not None:
                self._queue.add(owner)

    def _on_change(self, table: Table, change: Change) -> None:
        version = change.after
        if table.name == _CRDS:
            for item in sorted(self._undecided):
                self._queue.add(item)
        if change.deleted:
            self._forget(table, version)
            for dependent in sorted(self._dependents.get(version.uid, ())):
                self._queue.add(dependent)
            return
        before = change.before
        metadata = version.object["metadata"]
        if before is None or before.object["metadata"].get("ownerReferences") != metadata.get(
            "ownerReferences"
        ):
            released = self._owners_of.get((table.name, version.key), ())
            self._note(table, version)
            for uid in released:
                owner = self._present.get(uid)
                if owner is not None:
                    self._queue.add(owner)
            if metadata.get("ownerReferences"):
                self._queue.add((table.name, version.key))
        if "deletionTimestamp" in metadata and metadata.get("finalizers"):
            self._queue.add((table.name, version.key))

    def _look_at(self, item: _Item) -> None:
        version = self._storage.store.table(item[0]).items.get(item[1])
        if version is None:
            return
        metadata = version.object["metadata"]
        finalizers = metadata.get("finalizers") or ()
        if "deletionTimestamp" in metadata:
            if _FOREGROUND in finalizers:
                self._delete_in_foreground(item, version)
            elif _ORPHAN in finalizers:
                self._orphan(item, version)
            return
        if metadata.get("ownerReferences"):
            self._check_owners(item, version)

    def _owner(self, reference: Json) -> Version | None:
        item = self._present.get(reference["uid"])
        return None if item is None else self._storage.store.table(item[0]).items.get(item[1])

    def _is_known(self, reference: Json) -> bool:
        """Whether it can be told if the owner is there."""
        uid = reference["uid"]
        if uid in self._present or uid in self._gone:
            return True
        served = self._storage.registry.of_kind(reference["apiVersion"], reference["kind"])
        return served is not None

    def _check_owners(self, item: _Item, version: Version) -> None:
        """Delete an object none of whose owners is left; drop references to those that are gone."""
        references = version.object["metadata"]["ownerReferences"]
        self._undecided.discard(item)
        if not all(self._is_known(reference) for reference in references):
            self._undecided.add(item)
            return
        solid: list[Json] = []
        waiting: list[Json] = []
        for reference in references:
            owner = self._owner(reference)
            if owner is None or owner.key[0] not in ("", version.key[0]):
                continue
            metadata = owner.object["metadata"]
            leaving = "deletionTimestamp" in metadata and _FOREGROUND in (
                metadata.get("finalizers") or ()
            )
            (waiting if leaving else solid).append(reference)
        if solid:
            if len(solid) + len(waiting) < len(references):
                self._rewrite_references(item, version, solid + waiting)
            return
        propagation = "Background"
        if waiting and self._dependents.get(version.uid):
            propagation = "Foreground"
        self._delete(item, version, propagation)

    def _delete(self, item: _Item, version: Version, propagation: str) -> None:
        resource = self._resource(item[0])
        if resource is None:
            return
        call = self._storage.system_call("generic-garbage-collector")
        options = DeleteOptions(None, propagation, Preconditions(version.uid, None))
        self._storage.operations.delete(resource, *version.key, options, call)

    def _resource(self, storage: str) -> Resource | None:
        for resource in self._storage.registry:
            if resource.storage == storage and resource.stored:
                return resource
        return None

    def _delete_in_foreground(self, item: _Item, version: Version) -> None:
        blocked = False
        for dependent in sorted(self._dependents.get(version.uid, ())):
            found = self._storage.store.table(dependent[0]).items.get(dependent[1])
            if found is None:
                continue
            reference = _reference(found, version.uid)
            if reference is None:
                continue
            if reference.get("blockOwnerDeletion") and not self._waits_for(dependent, item):
                blocked = True
            if "deletionTimestamp" not in found.object["metadata"]:
                self._queue.add(dependent)
        if not blocked:
            self._drop_finalizer(item, version, _FOREGROUND)

    def _waits_for(self, start: _Item, wanted: _Item) -> bool:
        """Whether one object goes in the foreground only after another: who owns whom in circles.

        Each object of a circle would wait for the next for ever.
        """
        seen, left = {start}, [start]
        while left:
            item = left.pop()
            if item == wanted:
                return True
            version = self._storage.store.table(item[0]).items.get(item[1])
            if version is None or not _goes_in_foreground(version):
                continue
            for dependent in self._dependents.get(version.uid, set()) - seen:
                found = self._storage.store.table(dependent[0]).items.get(dependent[1])
                reference = _reference(found, version.uid) if found else None
                if reference and reference.get("blockOwnerDeletion"):
                    seen.add(dependent)
                    left.append(dependent)
        return False

    def _orphan(self, item: _Item, version: Version) -> None:
        for dependent in sorted(self._dependents.get(version.uid, ())):
            found = self._storage.store.table(dependent[0]).items.get(dependent[1])
            if found is None:
                continue
            references = found.object["metadata"].get("ownerReferences") or ()
            kept = [reference for reference in references if reference["uid"] != version.uid]
            self._rewrite_references(dependent, found, kept)
        self._drop_finalizer(item, version, _ORPHAN)

    def _rewrite_references(self, item: _Item, version: Version, kept: list[Json]) -> None:
        metadata = dict(version.object["metadata"])
        if kept:
            metadata["ownerReferences"] = kept
        else:
            metadata.pop("ownerReferences", None)
        store = self._storage.store
        document = {**version.object, "metadata": metadata}
        store.put(store.table(item[0]), version.key, document, version.managed)

    def _drop_finalizer(self, item: _Item, version: Version, finalizer: str) -> None:
        store = self._storage.store
        metadata = dict(version.object["metadata"])
        left = [name for name in metadata["finalizers"] if name != finalizer]
        if not left and not metadata.get("deletionGracePeriodSeconds"):
            store.remove(store.table(item[0]), version.key)
            return
        if left:
            metadata["finalizers"] = left
        else:
            del metadata["finalizers"]
        document = {**version.object, "metadata": metadata}
        store.put(store.table(item[0]), version.key, document, version.managed)


def _reference(version: Version, uid: str) -> Json | None:
    """An object's reference to an owner."""
    references = version.object["metadata"].get("ownerReferences") or ()
    return next((each for each in references if each["uid"] == uid), None)


def _goes_in_foreground(version: Version) -> bool:
    metadata = version.object["metadata"]
    return "deletionTimestamp" in metadata and _FOREGROUND in (metadata.get("finalizers") or ())
