"""Paths below an object: status, scale, binding, eviction, resize, tokens."""

from __future__ import annotations

from typing import Any

from penstock_cluster.registry.controllers.crds import json_path
from penstock_cluster.registry.merging import managed
from penstock_cluster.registry.model import errors, typed
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.documents import compact, dumps, read, with_value
from penstock_cluster.registry.model.errors import ApiError, FieldFault, Json, ResourceName
from penstock_cluster.registry.model.selectors import LabelSelector
from penstock_cluster.registry.objects.resource import Resource
from penstock_cluster.registry.objects.store import Version
from penstock_cluster.registry.operations.deletion import DeleteOptions, Preconditions
from penstock_cluster.registry.operations.patching import patched
from penstock_cluster.registry.operations.storage import Storage
from penstock_cluster.registry.operations.writing import storage_key
from penstock_cluster.registry.tokens import Tokens

SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_BINDING = ResourceName("", "pods/binding", "")
#: Written through the object's own decoding, as a view of the whole object.
_OBJECT_PATHS = ("", "status", "resize", "ephemeralcontainers", "finalize")


class Subresources:
    """Dispatches what is sent to a path below an object."""

    def __init__(self, storage: Storage, tokens: Tokens) -> None:
        self._storage = storage
        self._operations = storage.operations
        self._tokens = tokens

    @staticmethod
    def _check(resource: Resource, name: str, subresource: str) -> None:
        if subresource and subresource not in resource.subresources:
            raise errors.not_found(resource.name, name)

    # Reading

    def get(self, resource: Resource, namespace: str, name: str, subresource: str) -> Version:
        version = self._operations.get(resource, namespace, name)
        if subresource == "scale":
            return Version(version.key, 0, self.scale_of(resource, version), ())
        return version

    # Creating

    def create(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str,
        document: Json,
        call: Call,
    ) -> Json:
        self._check(resource, name, subresource)
        if subresource == "binding":
            return self.bind(resource, namespace, name, document, call)
        if subresource == "eviction":
            return self.evict(resource, namespace, name, document, call)
        if subresource == "token":
            return self._tokens.answer(namespace, name, document)
        raise not_available(resource, subresource)

    # Changing

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str,
        document: Json,
        call: Call,
    ) -> tuple[Version, bool]:
        self._check(resource, name, subresource)
        if subresource in _OBJECT_PATHS:
            return self._operations.update(resource, namespace, name, document, call, subresource)
        if subresource == "scale":
            current = self._operations.get(resource, namespace, name)
            return self._scale(resource, current, document, call), False
        raise not_available(resource, subresource)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str,
        kind: str,
        body: Any,
        call: Call,
        *,
        force: bool = False,
    ) -> tuple[Version, bool]:
        self._check(resource, name, subresource)
        if subresource == "resize":
            return self._resize(resource, namespace, name, kind, body, call, force=force), False
        if subresource in _OBJECT_PATHS:
            return self._operations.patch(
                resource, namespace, name, kind, body, call, subresource, force=force
            )
        if subresource == "scale":
            current = self._operations.get(resource, namespace, name)
            if kind == "apply":
                raise errors.plain_internal(
                    "failed to create manager for existing fields: failed to convert live object "
                    "(/; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to "
                    "an invalid group/version: autoscaling/v1"
                )
            scale = self.scale_of(resource, current)
            shape = self._storage.types.shape("io.k8s.api.autoscaling.v1.Scale")
            wanted = patched(shape, scale, kind, body)
            try:
                return self._scale(resource, current, wanted, call), False
            except typed.DecodeError as error:
                raise _bad_scale(scale, wanted, error) from None
        raise not_available(resource, subresource)

    # Scale

    @staticmethod
    def _scale_paths(
        resource: Resource,
    ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        found = (resource.crd_version.get("subresources") or {}).get("scale") or {}
        return (
            json_path(found.get("specReplicasPath", ".spec.replicas")),
            json_path(found.get("statusReplicasPath", ".status.replicas")),
            json_path(found.get("labelSelectorPath", "")),
        )

    def scale_of(self, resource: Resource, version: Version) -> Json:
        """The ``autoscaling/v1`` Scale of an object."""
        document = self._operations.form(resource, version)
        wanted_at, present_at, selector_at = self._scale_paths(resource)
        metadata = {
            key: document["metadata"][key]
            for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in document["metadata"]
        }
        replicas = read(document, wanted_at)
        if replicas is None and resource.custom:
            path = "." + ".".join(wanted_at)
            raise errors.internal(
                f"the spec replicas field {path!r} does not exist".replace("'", '"')
            )
        scale: Json = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata}
        scale["spec"] = {"replicas": replicas} if replicas else {}
        scale["status"] = {"replicas": read(document, present_at) or 0}
        selector = (
            read(document, selector_at)
            if selector_at
            else _selector_text(read(document, ("spec", "selector")))
        )
        if selector:
            scale["status"]["selector"] = selector
        return scale

    def _scale(self, resource: Resource, current: Version, wanted: Json, call: Call) -> Version:
        shape = self._storage.types.shape("io.k8s.api.autoscaling.v1.Scale")
        decoded, _ = typed.decode(shape, wanted)
        metadata = decoded.get("metadata") or {}
        version = metadata.get("resourceVersion")
        if version and version != str(current.number):
            raise errors.conflict(resource.name, current.key[1])
        replicas = decoded["spec"].get("replicas", 0)
        if replicas < 0 and not resource.custom:
            fault = FieldFault(
                "spec.replicas",
                "FieldValueInvalid",
                f"Invalid value: {replicas}: must be greater than or equal to 0",
            )
            raise errors.invalid(
                ResourceName("autoscaling", "scales", "Scale"), current.key[1], [fault]
            )
        document = self._operations.form(resource, current)
        new = with_value(document, self._scale_paths(resource)[0], replicas)
        new = {**new, "metadata": dict(new["metadata"])}
        changed = self._operations.change(resource, current, new, call, "scale")
        return Version(changed.key, 0, self.scale_of(resource, changed), ())

    # Pods

    def _resize(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        kind: str,
        body: Any,
        call: Call,
        *,
        force: bool,
    ) -> Version:
        current = self._operations.get(resource, namespace, name)
        version, _ = self._operations.patch(
            resource, namespace, name, kind, body, call, "resize", force=force
        )
        asked = (
            kind != "apply"
            and patched(resource.shape, current.object, kind, body) != current.object
        )
        if version is current and asked and not call.dry_run:
            # The real server writes when more was asked for than it takes.
            document = {**current.object, "metadata": dict(current.object["metadata"])}
            table = self._storage.store.table(resource.storage)
            return self._storage.store.put(table, current.key, document, current.managed)
        return version

    def bind(
        self, resource: Resource, namespace: str, name: str, document: Json, call: Call
    ) -> Json:
        """Assign a pod to a node; the node is not looked up."""
        shape = self._storage.types.shape("io.k8s.api.core.v1.Binding")
        try:
            binding, _ = typed.decode(shape, document)
        except typed.DecodeError as error:
            raise errors.bad_request(
                f'Binding in version "v1" cannot be handled as a Binding: {error}'
            ) from None
        metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
        if name and metadata.get("name", name) != name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        name = name or metadata.get("name", "")
        if target.get("kind") not in (None, "", "Node"):
            raise errors.plain_internal(
                f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", '
                '"<empty>"'
            )
        if not target.get("name"):
            raise errors.plain_internal("target.name: Required value")
        current = self._operations.get(resource, namespace, name)
        self._check_binding(resource, current, metadata)
        pod = current.object
        spec = {**pod["spec"], "nodeName": target["name"]}
        merged = dict(pod["metadata"])
        for field in ("annotations", "labels"):
            if metadata.get(field):
                merged[field] = {**(merged.get(field) or {}), **metadata[field]}
        condition = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": call.now,
        }
        status = with_pod_condition(pod.get("status") or {}, condition)
        new = {**pod, "metadata": merged, "spec": spec, "status": status}
        owners = managed.after_update(
            current.managed,
            resource.shape,
            pod,
            new,
            manager=call.manager,
            api_version="v1",
            subresource="binding",
            now=call.now,
        )
        if not call.dry_run:
            self._storage.store.put(
                self._storage.store.table(resource.storage), current.key, new, owners
            )
        return {**SUCCESS, "code": 201}

    def _check_binding(self, resource: Resource, current: Version, metadata: Json) -> None:
        pod, name = current.object, current.key[1]
        for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted = metadata.get(field)
            present = current.uid if field == "uid" else str(current.number)
            if wanted and wanted != present:
                key = storage_key(resource, current.key)
                why = (
                    f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, "
                    f"AdditionalErrorMsg: Precondition failed: {word} in precondition: {wanted}, "
                    f"{word} in object meta: {present}"
                )
                raise errors.conflict(resource.name, name, why)
        if "deletionTimestamp" in pod["metadata"]:
            why = f"pod {name} is being deleted, cannot be assigned to a host"
            raise errors.conflict(_BINDING, name, why)
        node = pod["spec"].get("nodeName")
        if node:
            why = f'pod {name} is already assigned to node "{node}"'
            raise errors.conflict(_BINDING, name, why)
        if pod["spec"].get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
            raise errors.conflict(_BINDING, name, why)

    def evict(
        self, resource: Resource, namespace: str, name: str, document: Json, call: Call
    ) -> Json:
        """Delete a pod unless a disruption budget forbids it."""
        shape = self._storage.types.shape("io.k8s.api.policy.v1.Eviction")
        try:
            eviction, _ = typed.decode(shape, document)
        except typed.DecodeError as error:
            raise errors.bad_request(
                f'Eviction in version "v1" cannot be handled as a Eviction: {error}'
            ) from None
        metadata: Json = eviction.get("metadata") or {}
        if metadata.get("name", name) != name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        options: Json = eviction.get("deleteOptions") or {}
        dry_run = call.dry_run or bool(options.get("dryRun"))
        current = self._operations.get(resource, namespace, name)
        pod = current.object
        phase = read(pod, ("status", "phase"))
        unprotected = phase in ("Pending", "Succeeded", "Failed") or (
            "deletionTimestamp" in pod["metadata"]
        )
        if not unprotected:
            self._spend_budget(pod, namespace, dry_run=dry_run)
        if dry_run:
            return {**SUCCESS, "code": 201}
        if phase not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]:
            current = self._mark_disrupted(resource, current, call)
        wanted = options.get("preconditions") or {}
        self._operations.delete(
            resource,
            namespace,
            name,
            DeleteOptions(
                options.get("gracePeriodSeconds"),
                "",
                Preconditions(wanted.get("uid"), None),
            ),
            call,
        )
        return {**SUCCESS, "code": 201}

    def _mark_disrupted(self, resource: Resource, current: Version, call: Call) -> Version:
        pod = current.object
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": call.now,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        status = with_pod_condition(pod.get("status") or {}, condition)
        new = {**pod, "metadata": dict(pod["metadata"]), "status": status}
        table = self._storage.store.table(resource.storage)
        return self._storage.store.put(table, current.key, new, current.managed)

    def _spend_budget(self, pod: Json, namespace: str, *, dry_run: bool) -> None:
        store = self._storage.store
        table = store.table("poddisruptionbudgets.policy")
        labels = pod["metadata"].get("labels")
        budgets = [
            version
            for version in table.in_namespace(namespace)
            if LabelSelector.of(version.object["spec"].get("selector")).matches(labels)
            and version.object["spec"].get("selector") is not None
        ]
        if len(budgets) > 1:
            raise errors.internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support."
            )
        if not budgets:
            return
        budget = budgets[0]
        ready = any(
            item.get("type") == "Ready" and item.get("status") == "True"
            for item in read(pod, ("status", "conditions")) or ()
        )
        status = budget.object.get("status") or {}
        healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        if not ready and healthy >= wanted > 0:
            return
        if status.get("disruptionsAllowed", 0) <= 0:
            cause = {
                "reason": "DisruptionBudget",
                "message": f"The disruption budget {budget.key[1]} needs {wanted} healthy pods "
                f"and has {healthy} currently",
            }
            raise errors.too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                retry_after=0,
                cause=cause,
            )
        if dry_run:
            return
        spent = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}
        new = {**budget.object, "metadata": dict(budget.object["metadata"]), "status": spent}
        store.put(table, budget.key, new, budget.managed)


def with_pod_condition(status: Json, condition: Json) -> Json:
    """A status with one condition set or replaced."""
    conditions = list(status.get("conditions") or ())
    for index, item in enumerate(conditions):
        if item.get("type") == condition["type"]:
            conditions[index] = condition
            break
    else:
        conditions.append(condition)
    return {**status, "conditions": conditions}


def _selector_text(selector: Any) -> str:
    labels = (selector or {}).get("matchLabels") or {}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def _bad_scale(scale: Json, wanted: Json, error: Exception) -> ApiError:
    ordered: Json = {key: wanted.get(key) for key in ("apiVersion", "kind") if key in wanted}
    ordered |= {key: value for key, value in wanted.items() if key not in ordered}
    shown = compact(dumps(ordered).decode())
    fault = FieldFault("patch", "FieldValueInvalid", f"Invalid value: {shown}: {error}")
    return errors.invalid(ResourceName("", "", ""), "", [fault])


def not_available(resource: Resource, subresource: str) -> ApiError:
    """A path of the real server that needs a node's container runtime."""
    return ApiError(
        501,
        "NotImplemented",
        f"the embedded cluster does not serve {resource.plural}/{subresource}",
        {"kind": resource.plural},
    )
