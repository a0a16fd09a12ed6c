"""Create, read, change and delete: one path for every kind and every caller.

HTTP and the in-process :class:`~penstock_cluster.registry.api.Api` both come here, after
authentication and authorisation. A change goes through decoding, what the path may write,
defaults, checks, policies, ownership of fields, and then to the store in one piece; a change that
changes nothing is not written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.objects.decoding import decode, given_owners, place
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Store, Version
from penstock_cluster.registry.operations.creation import Creation
from penstock_cluster.registry.operations.deletion import Deleted, DeleteOptions, Deletion
from penstock_cluster.registry.operations.patching import Patching
from penstock_cluster.registry.operations.writing import Writer


class Operations:
    """All operations on stored objects. Synchronous: one call is one atomic step."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._writer = Writer(store)
        #: Asked in this order before anything is stored.
        self.admission = self._writer.admission
        #: Kinds whose deletion is a process of its own, by storage name.
        self.deletion_hooks = self._writer.deletion_hooks
        self._creation = Creation(self._writer)
        self._patching = Patching(self._writer, self._creation)
        self._deletion = Deletion(self._writer)

    def get(self, resource: Resource, namespace: str, name: str) -> Version:
        """The present version of an object; :class:`ApiError` 404."""
        return self._writer.get(resource, namespace, name)

    def form(self, resource: Resource, version: Version) -> Json:
        """A stored object in the form of ``resource``, without managed fields."""
        return self._writer.form(resource, version)

    def create(
        self, resource: Resource, namespace: str, document: Json, call: Call, name: str = ""
    ) -> Version:
        """Create an object; ``name`` is that of the path, when it has one."""
        return self._creation.create(resource, namespace, document, call, name)

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        document: Json,
        call: Call,
        subresource: str = "",
    ) -> tuple[Version, bool]:
        """Replace an object (PUT); the flag says whether it was created."""
        new, listed = decode(resource, document, call)
        metadata = new["metadata"]
        place(resource, namespace, name, metadata)
        current = self._writer.find(resource, namespace, name)
        if current is None:
            if subresource or not resource.strategy.creates_on_update:
                raise errors.not_found(resource.name, name)
            return self._creation.create_decoded(resource, namespace, new, call, None), True
        self._writer.check_version(resource, current, metadata, required=not subresource)
        owners = given_owners(listed)
        return self._writer.change(resource, current, new, call, subresource, entries=owners), False

    def change(
        self, resource: Resource, current: Version, new: Json, call: Call, subresource: str
    ) -> Version:
        """Replace ``current`` by ``new`` on behalf of a path that worked ``new`` out itself."""
        return self._writer.change(resource, current, new, call, subresource)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        kind: str,
        body: Any,
        call: Call,
        subresource: str = "",
        *,
        force: bool = False,
    ) -> tuple[Version, bool]:
        """Patch an object; the flag says whether an apply created it."""
        return self._patching.patch(
            resource, namespace, name, kind, body, call, subresource, force=force
        )

    def delete(
        self, resource: Resource, namespace: str, name: str, options: DeleteOptions, call: Call
    ) -> Deleted:
        """Delete an object, or mark it for those who hold it; what it came to."""
        return self._deletion.delete(resource, namespace, name, options, call)

    def delete_collection(
        self, resource: Resource, versions: Iterable[Version], options: DeleteOptions, call: Call
    ) -> list[Version]:
        """Delete each of ``versions``; they are the answer, as they were before."""
        return self._deletion.delete_collection(resource, versions, options, call)
