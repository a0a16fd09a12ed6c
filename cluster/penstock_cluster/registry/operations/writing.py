"""Storing a change: checks, admission, ownership of fields, then the store, in one piece.

Whatever changes an object ends here, after it has worked out what the object shall be. A change
that changes nothing is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock_cluster.registry.admission.request import Admission, AdmissionRequest
from penstock_cluster.registry.merging import managed
from penstock_cluster.registry.merging.managed import Entries
from penstock_cluster.registry.model import errors, objectmeta
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.documents import dumps
from penstock_cluster.registry.model.errors import Faults, FieldFault, Json
from penstock_cluster.registry.model.structural_sharing import identical
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Key, Store, Version

_GRPC_LIMIT_BYTES: Final = 2 * 2**20
_REQUEST_LIMIT_BYTES: Final = 3 * 2**19


class Writer:
    """Reads and writes stored objects on behalf of creating, changing, patching and deleting."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.admission: list[Admission] = []
        #: Kinds whose deletion is a process of its own, by storage name.
        self.deletion_hooks: dict[str, Callable[[Json, Call], Json]] = {}

    def find(self, resource: Resource, namespace: str, name: str) -> Version | None:
        """The present version of an object."""
        return self.store.table(resource.storage).items.get((namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Version:
        """The present version of an object; :class:`ApiError` 404."""
        version = self.find(resource, namespace, name)
        if version is None:
            raise errors.not_found(resource.name, name)
        return version

    def form(self, resource: Resource, version: Version) -> Json:
        """A stored object in the form of ``resource``, without managed fields."""
        return version.object if resource.view is None else resource.view(version)

    def stored_form(self, resource: Resource, current: Version) -> Json:
        """A stored object in the form that its strategy compares and writes."""
        return current.object if resource.stored_elsewhere else self.form(resource, current)

    def check_version(
        self, resource: Resource, current: Version, metadata: Json, *, required: bool
    ) -> None:
        """Conflict when what was sent is based on another version or another object."""
        name = current.key[1]
        given = metadata.get("resourceVersion")
        if given:
            if given != str(current.number) and given != "0":
                raise errors.conflict(resource.name, name)
        elif required and resource.strategy.requires_version:
            fault = FieldFault(
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
            )
            raise errors.invalid(resource.name, name, [fault], plural=True)
        uid = metadata.get("uid")
        if uid and uid != current.uid:
            key = storage_key(resource, current.key)
            why = (
                f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
                f"UID in object meta: {current.uid}"
            )
            raise errors.conflict(resource.name, name, why)

    def admit(self, request: AdmissionRequest) -> None:
        """Ask every admission in turn; the first that refuses raises :class:`ApiError`."""
        for admission in self.admission:
            admission(request)

    def change(
        self,
        resource: Resource,
        current: Version,
        new: Json,
        call: Call,
        subresource: str,
        *,
        entries: Entries | None = None,
        applied: Entries | None = None,
    ) -> Version:
        """Store ``new`` in place of ``current``, if it is allowed and differs.

        ``entries``: managed fields that the client sent; ``applied``: those an apply worked out.
        """
        strategy = resource.strategy
        old = self.stored_form(resource, current)
        strategy.prepare_update(new, old, subresource, call)
        new["metadata"] = metadata = objectmeta.for_update(new["metadata"], old["metadata"])
        if strategy.counts_generation and strategy.desired_changed(new, old):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        faults = Faults()
        strategy.validate_update(new, old, subresource, faults, self.store)
        if faults:
            raise errors.invalid(resource.fault_name, current.key[1], faults.items)
        self.admit(AdmissionRequest(resource, "UPDATE", subresource, new, old, call))
        if applied is not None:
            owners = applied
        elif entries == ():
            owners = ()
        else:
            owners = managed.after_update(
                current.managed if entries is None else entries,
                resource.shape,
                old,
                new,
                manager=call.manager,
                api_version=resource.api_version,
                subresource=subresource,
                now=call.now,
            )
        return self.settle(resource, current, new, owners, call)

    def settle(
        self, resource: Resource, current: Version, new: Json, entries: Entries, call: Call
    ) -> Version:
        """Store a changed object, or remove it when the last thing that held it is gone."""
        if entries == current.managed and identical(new, self.stored_form(resource, current)):
            return current
        metadata = new["metadata"]
        if metadata.get("finalizers") == []:
            del metadata["finalizers"]
        if self._is_finished(resource, metadata, new):
            if not call.dry_run:
                self.store.remove(self.store.table(resource.storage), current.key)
            return Version(current.key, 0, new, entries)
        return self.commit(resource, current.key, new, entries, call)

    def _is_finished(self, resource: Resource, metadata: Json, document: Json) -> bool:
        """Whether the last thing that held a deleted object is gone."""
        if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
            return False
        if resource.storage == "namespaces":
            return not (document.get("spec") or {}).get("finalizers")
        return not metadata.get("deletionGracePeriodSeconds")

    def commit(
        self, resource: Resource, key: Key, document: Json, entries: Entries, call: Call
    ) -> Version:
        """Store a document; with ``dry_run`` only say what would be stored."""
        if call.dry_run:
            return Version(key, 0, document, entries)
        if call.size > _REQUEST_LIMIT_BYTES:
            _check_size(Version(key, 0, document, entries))
        version = self.store.put(self.store.table(resource.storage), key, document, entries)
        resource.strategy.after_write(document)
        return version


def _check_size(version: Version) -> None:
    """What etcd and its client refuse to take."""
    size = len(dumps(version.external()))
    if size > _GRPC_LIMIT_BYTES:
        raise errors.plain_internal(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max "
            f"({size} vs. {_GRPC_LIMIT_BYTES})"
        )
    if size > _REQUEST_LIMIT_BYTES:
        raise errors.plain_internal("etcdserver: request is too large")


def storage_key(resource: Resource, key: Key) -> str:
    """The key that error messages of the store show."""
    group = f"{resource.group}/" if resource.group else ""
    place = f"{key[0]}/" if key[0] else ""
    return f"/registry/{group}{resource.plural}/{place}{key[1]}"
