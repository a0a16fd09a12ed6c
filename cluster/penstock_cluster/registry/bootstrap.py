"""What a cluster starts with: its own namespaces, and the roles that every cluster has."""

from __future__ import annotations

from typing import Final

from penstock_cluster.registry.admission.rbac import bootstrap_objects
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.operations.storage import Storage

_SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


def bootstrap(storage: Storage) -> None:
    """Create what is missing."""
    call = storage.system_call("kube-apiserver")
    for name in _SYSTEM_NAMESPACES:
        _ensure(storage, "namespaces", {"metadata": {"name": name}}, call)
    for plural, document in bootstrap_objects():
        _ensure(storage, f"{plural}.rbac.authorization.k8s.io", document, call)


def _ensure(storage: Storage, resource_name: str, document: Json, call: Call) -> None:
    resource = storage.registry.named(resource_name)
    if storage.store.find(resource.storage, "", document["metadata"]["name"]) is None:
        storage.operations.create(resource, "", document, call)
