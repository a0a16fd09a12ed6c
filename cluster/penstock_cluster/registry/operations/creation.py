"""Creating objects: from decoding to admission; names that the server makes up."""

from __future__ import annotations

import uuid
from typing import Final

from penstock_cluster.registry.admission.request import AdmissionRequest
from penstock_cluster.registry.merging import managed
from penstock_cluster.registry.merging.managed import Entries
from penstock_cluster.registry.model import errors, names, objectmeta
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.errors import Faults, Json
from penstock_cluster.registry.objects.decoding import decode, given_owners, place
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Version
from penstock_cluster.registry.operations.writing import Writer

_NAME_ATTEMPTS: Final = 8


class Creation:
    """Creates objects with a :class:`Writer`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store

    def create(
        self, resource: Resource, namespace: str, document: Json, call: Call, name: str = ""
    ) -> Version:
        """Create an object; ``name`` is that of the path, when it has one."""
        if resource.terminating:
            given = (document.get("metadata") or {}).get("name", "") if document else ""
            raise errors.forbidden(
                resource.name,
                str(given),
                "create not allowed while custom resource definition is terminating",
            )
        new, listed = decode(resource, document, call)
        metadata = new["metadata"]
        if metadata.get("resourceVersion"):
            raise errors.plain_internal(
                "resourceVersion should not be set on objects to be created"
            )
        place(resource, namespace, name, metadata)
        return self.create_decoded(resource, namespace, new, call, given_owners(listed))

    def create_decoded(
        self, resource: Resource, namespace: str, new: Json, call: Call, entries: Entries | None
    ) -> Version:
        """Create from a decoded document; ``entries``: owners of fields, if they are known."""
        strategy = resource.strategy
        metadata = objectmeta.for_create(new["metadata"])
        new["metadata"] = metadata
        prefix = metadata.get("generateName")
        generated = bool(prefix) and not metadata.get("name")
        table = self._store.table(resource.storage)
        if generated and prefix:
            for _ in range(_NAME_ATTEMPTS):
                metadata["name"] = names.generated(prefix)
                if (namespace, metadata["name"]) not in table.items:
                    break
        if resource.namespaced:
            self._check_namespace(resource, namespace, metadata.get("name", ""))
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = call.now
        if strategy.counts_generation:
            metadata["generation"] = 1
        strategy.default(new)
        if entries is None:
            # Before admission: nobody owns what it adds.
            entries = managed.after_update(
                (),
                resource.shape,
                {"metadata": {}},
                _without(new, strategy.reset_fields("")),
                manager=call.manager,
                api_version=resource.api_version,
                subresource="",
                now=call.now,
            )
        strategy.admit_create(new, namespace, call, self._store)
        strategy.prepare_create(new, call, self._store)
        faults = Faults()
        strategy.validate_create(new, faults, call, self._store)
        name = metadata.get("name", "")
        if faults:
            raise errors.invalid(resource.fault_name, name, faults.items)
        self._writer.admit(AdmissionRequest(resource, "CREATE", "", new, None, call))
        existing = table.items.get((namespace, name))
        if existing is not None:
            if generated:
                raise errors.generated_name_taken(resource.name, name)
            deleting = "deletionTimestamp" in existing.object["metadata"]
            raise errors.already_exists(resource.name, name, being_deleted=deleting)
        return self._writer.commit(resource, (namespace, name), new, entries, call)

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        found = self._store.table("namespaces").items.get(("", namespace))
        if found is None:
            raise errors.not_found(errors.ResourceName("", "namespaces", "Namespace"), namespace)
        if "deletionTimestamp" in found.object["metadata"]:
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            raise errors.forbidden(resource.name, name, why, [cause])


def _without(document: Json, fields: tuple[str, ...]) -> Json:
    return {key: item for key, item in document.items() if key not in fields}
