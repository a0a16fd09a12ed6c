"""Namespaces: what every one of them holds, and taking one down.

A new namespace gets the service account ``default`` and the certificate bundle
``kube-root-ca.crt``. A deleted one is first emptied; its conditions say what is left.
"""

from __future__ import annotations

from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.errors import ApiError, Json
from penstock_cluster.registry.objects.store import Change, Table, Version
from penstock_cluster.registry.objects.workqueue import WorkQueue
from penstock_cluster.registry.operations.deletion import DeleteOptions
from penstock_cluster.registry.operations.storage import Storage

_BUNDLE = "kube-root-ca.crt"
_BUNDLE_NOTE = {
    "kubernetes.io/description": (
        "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
        "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
        "guaranteed across distributions of Kubernetes clusters."
    )
}
_PROTECTED = ("default", "kube-public", "kube-system")


def namespace_mark(namespace: Json, call: Call) -> Json:
    """A namespace as its DELETE leaves it; :class:`ApiError` 403 for those that must stay."""
    name = namespace["metadata"]["name"]
    if name in _PROTECTED:
        raise errors.forbidden(
            errors.ResourceName("", "namespaces", "Namespace"),
            name,
            "this namespace may not be deleted",
        )
    metadata = {**namespace["metadata"], "deletionTimestamp": call.now}
    status = {**(namespace.get("status") or {}), "phase": "Terminating"}
    return {**namespace, "metadata": metadata, "status": status}


class NamespaceController:
    """Fills new namespaces and empties deleted ones."""

    def __init__(self, storage: Storage, ca_pem: str) -> None:
        """``ca_pem``: the authority of the serving certificate, for ``kube-root-ca.crt``."""
        self._storage = storage
        self._ca_pem = ca_pem
        self._queue: WorkQueue[str] = WorkQueue("namespace controller", self._reconcile)

    def start(self) -> None:
        self._queue.start()
        store = self._storage.store
        for version in list(store.table("namespaces").items.values()):
            self._reconcile(version.key[1])
        store.table("namespaces").listeners.append(self._on_namespace)
        store.listeners.append(self._on_any)

    def stop(self) -> None:
        self._queue.stop()

    def _on_namespace(self, change: Change) -> None:
        if not change.deleted:
            self._queue.add(change.after.key[1])

    def _on_any(self, table: Table, change: Change) -> None:
        namespace = change.after.key[0]
        if not namespace:
            return
        if change.deleted:
            found = self._storage.store.table("namespaces").items.get(("", namespace))
            wanted = table.name == "serviceaccounts" or table.name == "configmaps"
            if found is not None and (wanted or "deletionTimestamp" in found.object["metadata"]):
                self._queue.add(namespace)

    def _reconcile(self, name: str) -> None:
        version = self._storage.store.table("namespaces").items.get(("", name))
        if version is None:
            return
        if "deletionTimestamp" in version.object["metadata"]:
            self._empty(version)
        else:
            self._fill(name)

    def _fill(self, name: str) -> None:
        call = self._storage.system_call("kube-controller-manager")
        wanted: tuple[tuple[str, Json], ...] = (
            (
                "configmaps",
                {
                    "metadata": {"name": _BUNDLE, "annotations": _BUNDLE_NOTE},
                    "data": {"ca.crt": self._ca_pem},
                },
            ),
            ("serviceaccounts", {"metadata": {"name": "default"}}),
        )
        for plural, document in wanted:
            resource = self._storage.registry.named(plural)
            known = document["metadata"]["name"]
            found = self._storage.store.table(plural).items.get((name, known))
            if found is None:
                self._storage.operations.create(resource, name, document, call)
            elif "data" in document and found.object.get("data") != document["data"]:
                patch = {"data": document["data"]}
                self._storage.operations.patch(resource, name, known, "merge", patch, call)

    def publish(self, ca_pem: str) -> None:
        """Put another certificate authority into the bundle of every namespace."""
        self._ca_pem = ca_pem
        for key in self._storage.store.table("namespaces").keys:
            self._queue.add(key[1])

    def _empty(self, version: Version) -> None:
        """Delete what is left; when nothing is, let the namespace go."""
        name = version.key[1]
        remaining: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        call = self._storage.system_call("namespace-controller")
        done: set[str] = set()
        for resource in self._storage.registry:
            if not resource.namespaced or not resource.stored or resource.storage in done:
                continue
            done.add(resource.storage)
            table = self._storage.store.table(resource.storage)
            for item in list(table.in_namespace(name)):
                if "deletionTimestamp" not in item.object["metadata"]:
                    try:
                        options = DeleteOptions(propagation="Background")
                        self._storage.operations.delete(resource, *item.key, options, call)
                    except ApiError as error:
                        if not error.is_not_found:
                            raise
            left = list(table.in_namespace(name))
            if left:
                remaining[resource.name.qualified] = len(left)
            for item in left:
                for finalizer in item.object["metadata"].get("finalizers") or ():
                    finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
        store = self._storage.store
        current = store.table("namespaces").items.get(("", name))
        if current is None:
            return
        if not remaining:
            self._release(current)
            return
        conditions = _conditions(
            remaining,
            finalizers,
            self._storage.timestamp(),
            (current.object.get("status") or {}).get("conditions") or [],
        )
        status = {**(current.object.get("status") or {}), "conditions": conditions}
        if status != current.object.get("status"):
            document = {**current.object, "metadata": dict(current.object["metadata"])}
            document["status"] = status
            store.put(store.table("namespaces"), current.key, document, current.managed)

    def _release(self, current: Version) -> None:
        store = self._storage.store
        spec = current.object.get("spec") or {}
        left = [item for item in spec.get("finalizers") or () if item != "kubernetes"]
        if left or current.object["metadata"].get("finalizers"):
            if left != spec.get("finalizers"):
                document = {**current.object, "metadata": dict(current.object["metadata"])}
                document["spec"] = {**spec, "finalizers": left}
                store.put(store.table("namespaces"), current.key, document, current.managed)
            return
        store.remove(store.table("namespaces"), current.key)


def _conditions(
    remaining: dict[str, int], finalizers: dict[str, int], now: str, before: list[Json]
) -> list[Json]:
    left = ", ".join(
        f"{name} has {count} resource instances" for name, count in sorted(remaining.items())
    )
    held = ", ".join(
        f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())
    )
    rows = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            f"Some resources are remaining: {left}",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True" if held else "False",
            "SomeFinalizersRemain" if held else "ContentHasNoFinalizers",
            f"Some content in the namespace has finalizers remaining: {held}"
            if held
            else "All content-preserving finalizers finished",
        ),
    ]
    known = {item["type"]: item for item in before}
    conditions = []
    for kind, status, reason, message in rows:
        old = known.get(kind)
        since = old["lastTransitionTime"] if old and old["status"] == status else now
        conditions.append(
            {
                "type": kind,
                "status": status,
                "lastTransitionTime": since,
                "reason": reason,
                "message": message,
            }
        )
    return conditions
