"""CustomResourceDefinitions: checking them, and serving what they define.

A new CRD is first accepted by name, then established, then served, in three visible writes; a
deleted one first loses its objects. The functions here are pure but for :class:`CrdController`,
which acts on the engine.
"""

from __future__ import annotations

import asyncio
from typing import Any

from penstock_cluster.registry.admission import cel
from penstock_cluster.registry.model import names, typed
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.documents import compact, read
from penstock_cluster.registry.model.errors import ApiError, Faults, Json
from penstock_cluster.registry.model.patterns import PatternError, go_pattern
from penstock_cluster.registry.model.shape import Shape
from penstock_cluster.registry.model.structural import Schema, Validation
from penstock_cluster.registry.objects.kinds import Registry
from penstock_cluster.registry.objects.resource import Resource, Strategy, Subresource
from penstock_cluster.registry.objects.store import Change, Store, Version
from penstock_cluster.registry.objects.workqueue import WorkQueue
from penstock_cluster.registry.operations.deletion import DeleteOptions
from penstock_cluster.registry.operations.storage import Storage
from penstock_cluster.registry.strategies.custom import CustomStrategy

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_LINGER_SECONDS = 5.0
_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_RULE_NAMES = frozenset(["oldSelf", "self"])
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_STATUS_VERBS = ("get", "patch", "update")
_ALL_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


class CrdStrategy(Strategy):
    counts_generation = True
    has_status = True
    requires_version = True

    def decode(self, resource: Resource, document: Json) -> tuple[Json, list[str]]:
        decoded, unknown = super().decode(resource, document)
        shape = resource.shape
        for step in ("spec", "versions", "", "schema", "openAPIV3Schema"):
            shape = shape.fields[step] if step else shape.element
        for index, version in enumerate(decoded["spec"].get("versions") or ()):
            schema = read(version, ("schema", "openAPIV3Schema"))
            if schema is not None:
                path = f"spec.versions[{index}].schema.openAPIV3Schema"
                _decode_below(schema, shape, path, unknown)
        return decoded, unknown

    def default(self, document: Json) -> None:
        spec = document.setdefault("spec", {})
        wanted = spec.setdefault("names", {})
        if wanted.get("kind"):
            wanted.setdefault("singular", wanted["kind"].lower())
            wanted.setdefault("listKind", f"{wanted['kind']}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, document: Json, call: Call, store: Store) -> None:
        document.pop("status", None)
        self.default(document)
        stored = [
            item["name"] for item in document["spec"].get("versions") or () if item.get("storage")
        ]
        document["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored or None,
        }

    def check(self, document: Json, faults: Faults) -> None:
        spec = document["spec"]
        wanted = spec.get("names") or {}
        name = document["metadata"].get("name", "")
        if name != f"{wanted.get('plural', '')}.{spec.get('group', '')}":
            faults.invalid(
                "metadata.name", compact(name), 'must be spec.names.plural+"."+spec.group'
            )
        if spec.get("scope") not in ("Cluster", "Namespaced"):
            faults.unsupported(
                "spec.scope", compact(spec.get("scope", "")), ("Cluster", "Namespaced")
            )
        versions = spec.get("versions") or []
        if sum(bool(item.get("storage")) for item in versions) != 1:
            faults.invalid(
                "spec.versions",
                compact([item.get("name") for item in versions]),
                "must have exactly one version marked as storage version",
            )
        for index, version in enumerate(versions):
            raw = read(version, ("schema", "openAPIV3Schema"))
            if raw is None:
                faults.required(f"spec.versions[{index}].schema.openAPIV3Schema")
                continue
            base = (
                "spec.validation" if len(versions) == 1 else f"spec.versions[{index}].schema"
            ) + ".openAPIV3Schema"
            check_schema(raw, base, faults)
        for why in names.subdomain_faults(spec.get("group", "")):
            faults.invalid("spec.group", compact(spec.get("group", "")), why)

    def check_change(self, new: Json, old: Json, faults: Faults) -> None:
        established = has_condition(old, "Established")
        for field in ("group", "scope", "kind"):
            path = ("spec", "names", field) if field == "kind" else ("spec", field)
            if read(new, path) != read(old, path) and established:
                faults.invalid(".".join(path), compact(read(new, path)), "field is immutable")


def _decode_below(schema: Json, shape: Shape, path: str, unknown: list[str]) -> None:
    """Decode the schemas that stand where a list or a flag could stand too, in place."""
    for name, child in (schema.get("properties") or {}).items():
        _decode_below(child, shape, f"{path}.properties[{name}]", unknown)
    for field in ("allOf", "anyOf", "oneOf"):
        for index, child in enumerate(schema.get(field) or ()):
            _decode_below(child, shape, f"{path}.{field}[{index}]", unknown)
    for field in ("items", "additionalProperties"):
        value = schema.get(field)
        if value is None or (field == "additionalProperties" and type(value) is bool):
            continue
        if type(value) is not dict:
            raise typed.DecodeError(f"{path}.{field}: expected an object or boolean")
        schema[field], strange = typed.decode(shape, value)
        unknown.extend(f"{path}.{field}.{item}" for item in strange)
        _decode_below(schema[field], shape, f"{path}.{field}", unknown)


def check_schema(raw: Json, path: str, faults: Faults) -> None:
    """Whether a schema is structural, its defaults fit and its rules compile."""
    if not raw.get("type"):
        faults.required(f"{path}.type", "must not be empty at the root")
    elif raw["type"] != "object":
        faults.invalid(f"{path}.type", compact(raw["type"]), "must be object at the root")
    for name, child in (raw.get("properties") or {}).items():
        if name != "metadata":
            _check_node(child, f"{path}.properties[{name}]", faults)
    _check_rules(raw, path, faults)
    if isinstance(raw.get("additionalProperties"), dict):
        _check_node(raw["additionalProperties"], f"{path}.additionalProperties", faults)


def _check_node(raw: Json, path: str, faults: Faults) -> None:
    before = len(faults.items)
    kind = raw.get("type", "")
    if (
        not kind
        and not raw.get("x-kubernetes-int-or-string")
        and not raw.get("x-kubernetes-preserve-unknown-fields")
    ):
        faults.required(f"{path}.type", "must not be empty for specified object fields")
    elif kind and kind not in _TYPES:
        faults.unsupported(f"{path}.type", compact(kind), _TYPES)
    if raw.get("pattern"):
        try:
            go_pattern(raw["pattern"])
        except PatternError as error:
            faults.invalid(
                f"{path}.pattern",
                compact(raw["pattern"]),
                f"must be a valid regular expression, but isn't: {error}",
            )
    if kind == "array" and not isinstance(raw.get("items"), dict):
        faults.required(f"{path}.items", "must be specified")
    if raw.get("x-kubernetes-list-type") == "map" and not raw.get("x-kubernetes-list-map-keys"):
        faults.required(
            f"{path}.x-kubernetes-list-map-keys",
            "must not be empty if x-kubernetes-list-type is map",
        )
    if raw.get("properties") and raw.get("additionalProperties"):
        faults.forbidden(
            f"{path}.additionalProperties",
            "additionalProperties and properties are mutual exclusive",
        )
    for name, child in (raw.get("properties") or {}).items():
        _check_node(child, f"{path}.properties[{name}]", faults)
    if isinstance(raw.get("items"), dict):
        _check_node(raw["items"], f"{path}.items", faults)
    if isinstance(raw.get("additionalProperties"), dict):
        _check_node(raw["additionalProperties"], f"{path}.additionalProperties", faults)
    _check_rules(raw, path, faults)
    if len(faults.items) == before:
        _check_default(raw, path, faults)


def _check_default(raw: Json, path: str, faults: Faults) -> None:
    if "default" not in raw:
        return
    schema = Schema(raw)
    found = Faults()
    Validation(found).check(schema, schema.admit(raw["default"], "", []), "")
    for fault in found.items:
        field = f"{path}.default" + (f".{fault.field}" if fault.field else "")
        faults.add(field, fault.reason, fault.message)


def _check_rules(raw: Json, path: str, faults: Faults) -> None:
    for index, rule in enumerate(raw.get("x-kubernetes-validations") or ()):
        step = f"{path}.x-kubernetes-validations[{index}]"
        for field in ("rule", "messageExpression"):
            text = rule.get(field)
            if field == "rule" and not (text or "").strip():
                faults.required(f"{step}.rule", "rule is not specified")
                continue
            if not text:
                continue
            try:
                cel.compiled(text).require(_RULE_NAMES)
            except cel.CelError as error:
                faults.invalid(f"{step}.{field}", _go_rule(rule), f"compilation failed: {error}")


def _go_rule(rule: Json) -> str:
    """A rule as Go prints the internal type."""
    return (
        f'{{"Rule":{compact(rule.get("rule", ""))},"Message":{compact(rule.get("message", ""))},'
        f'"MessageExpression":{compact(rule.get("messageExpression", ""))},'
        f'"Reason":{compact(rule.get("reason"))},"FieldPath":{compact(rule.get("fieldPath", ""))},'
        f'"OptionalOldSelf":{compact(rule.get("optionalOldSelf"))}}}'
    )


def json_path(text: str) -> tuple[str, ...]:
    """The steps of a simple path such as ``.spec.replicas``."""
    return tuple(part for part in text.split(".") if part)


def has_condition(document: Json, kind: str) -> bool:
    for item in read(document, ("status", "conditions")) or ():
        if item.get("type") == kind:
            return bool(item.get("status") == "True")
    return False


def resources_of(crd: Json, meta_shape: Shape) -> list[Resource]:
    """What a CRD serves, one resource per served version."""
    spec = crd["spec"]
    wanted = spec["names"]
    found = []
    storage = next(item["name"] for item in spec["versions"] if item.get("storage"))
    for version in _by_priority(spec["versions"]):
        if not version.get("served"):
            continue
        schema = Schema(version["schema"]["openAPIV3Schema"])
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        replicas = json_path(scale["specReplicasPath"]) if scale else ()
        strategy = CustomStrategy(
            schema, meta_shape, status="status" in subresources, replicas_path=replicas
        )
        shape = schema.shape()
        if shape.code == "any":
            shape = Shape("object", open=True)
        shape.fields = {
            **shape.fields,
            "apiVersion": Shape("string"),
            "kind": Shape("string"),
            "metadata": meta_shape,
        }
        resource = Resource(
            group=spec["group"],
            version=version["name"],
            kind=wanted["kind"],
            plural=wanted["plural"],
            singular=wanted.get("singular", ""),
            namespaced=spec["scope"] == "Namespaced",
            shape=shape,
            strategy=strategy,
            list_kind=wanted.get("listKind", ""),
            short_names=tuple(wanted.get("shortNames") or ()),
            categories=tuple(wanted.get("categories") or ()),
            verbs=_ALL_VERBS,
            custom=True,
            storage=f"{wanted['plural']}.{spec['group']}",
            definition=definition_of(spec["group"], version["name"], wanted["kind"]),
            epoch=int(crd["metadata"]["resourceVersion"]),
            terminating="deletionTimestamp" in crd["metadata"],
            storage_version=storage,
        )
        if "status" in subresources:
            resource.subresources["status"] = Subresource("status", wanted["kind"], _STATUS_VERBS)
        if scale:
            resource.subresources["scale"] = Subresource(
                "scale", "Scale", _STATUS_VERBS, "autoscaling", "v1"
            )
        resource.view = _view(resource, schema)
        resource.crd_version = version
        found.append(resource)
    return found


def definition_of(group: str, version: str, kind: str) -> str:
    return ".".join([*reversed(group.split(".")), version, kind])


def _view(resource: Resource, schema: Schema) -> Any:
    """Defaults of a newer schema and another version's name show when an object is read."""
    needs_defaults = schema.needs_defaults

    def view(version: Version) -> Json:
        document = version.object
        if document["apiVersion"] != resource.api_version:
            document = {**document, "apiVersion": resource.api_version}
        if needs_defaults and resource.outlived:
            document = schema.defaulted(document)
        return document

    return view


def _by_priority(versions: list[Json]) -> list[Json]:
    """Stable before beta before alpha, newer before older."""

    def rank(item: Json) -> tuple[int, int, int]:
        name = item["name"]
        digits = name[1:] if name.startswith("v") else ""
        for stage, word in ((1, "beta"), (0, "alpha")):
            major, found, minor = digits.partition(word)
            if found and major.isdigit() and minor.isdigit():
                return (stage, int(major), int(minor))
        return (2, int(digits), 0) if digits.isdigit() else (-1, 0, 0)

    return sorted(versions, key=rank, reverse=True)


def accepted_status(crd: Json, now: str, *, established: bool) -> Json:
    """The status after the names were accepted, and after the kind is served."""
    wanted = crd["spec"]["names"]
    state = {"type": "Established", "lastTransitionTime": now}
    if established:
        state |= {
            "status": "True",
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
        }
    else:
        state |= {
            "status": "False",
            "reason": "Installing",
            "message": "the initial names have been accepted",
        }
    accepted = {
        "type": "NamesAccepted",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "NoConflicts",
        "message": "no conflicts found",
    }
    return {
        "conditions": [accepted, state],
        "acceptedNames": dict(wanted),
        "storedVersions": crd["status"].get("storedVersions"),
    }


def with_condition(crd: Json, condition: Json) -> Json:
    status = crd.get("status") or {}
    others = [item for item in status.get("conditions") or () if item["type"] != condition["type"]]
    return {**status, "conditions": [*others, condition]}


def deletion_mark(crd: Json, call: Call) -> Json:
    """The CRD as its DELETE leaves it: marked, held until its objects are gone."""
    metadata = dict(crd["metadata"])
    metadata["deletionTimestamp"] = call.now
    finalizers = metadata.get("finalizers") or []
    if _CLEANUP not in finalizers:
        metadata["finalizers"] = [*finalizers, _CLEANUP]
    condition = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": call.now,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will "
        "begin soon",
    }
    return {**crd, "metadata": metadata, "status": with_condition(crd, condition)}


class CrdController:
    """Brings what is served in line with the CRDs in the store."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._served: dict[str, list[Resource]] = {}
        self._queue: WorkQueue[str] = WorkQueue("CRD controller", self.reconcile)

    def start(self) -> None:
        """Serve what is there and follow."""
        self._queue.start()
        table = self._storage.store.table(CRDS)
        for version in list(table.items.values()):
            self.reconcile(version.key[1])
        table.listeners.append(self._on_change)
        self._storage.store.listeners.append(self._on_any_change)

    def stop(self) -> None:
        self._queue.stop()

    def _on_change(self, change: Change) -> None:
        name = change.after.key[1]
        if change.deleted:
            self._withdraw(name)
        elif name in self._served:
            # A changed schema holds for the very next request.
            self._serve(name, change.after.object)
        self._queue.add(name)

    def _on_any_change(self, table: Any, change: Change) -> None:
        if change.deleted and table.name in self._served:
            self._queue.add(table.name)

    def _registry(self) -> Registry:
        return self._storage.registry

    def reconcile(self, name: str) -> None:
        """Take the next step for one CRD."""
        version = self._storage.store.table(CRDS).items.get(("", name))
        if version is None:
            self._withdraw(name)
            return
        crd = version.object
        if "deletionTimestamp" in crd["metadata"]:
            self._finish_deletion(name, version)
            return
        if not has_condition(crd, "NamesAccepted"):
            self._write_status(
                version, accepted_status(crd, self._storage.timestamp(), established=False)
            )
        elif not has_condition(crd, "Established"):
            self._serve(name, crd)
            self._write_status(
                version, accepted_status(crd, self._storage.timestamp(), established=True)
            )
        else:
            self._serve(name, crd)

    def _write_status(self, version: Version, status: Json) -> None:
        store = self._storage.store
        document = {
            **version.object,
            "metadata": dict(version.object["metadata"]),
            "status": status,
        }
        store.put(store.table(CRDS), version.key, document, version.managed)

    def _serve(self, name: str, crd: Json) -> None:
        epoch = int(crd["metadata"]["resourceVersion"])
        served = self._served.get(name)
        if served and served[0].epoch == epoch:
            return
        fresh = resources_of(crd, self._storage.meta_shape)
        for resource in fresh:
            table = self._storage.store.table(resource.storage)
            resource.outlived = bool(table.items) or any(old.outlived for old in served or ())
        for resource in served or ():
            self._registry().remove(resource)
        for resource in fresh:
            self._registry().add(resource)
        self._served[name] = fresh

    def _withdraw(self, name: str) -> None:
        for resource in self._served.pop(name, ()):
            self._registry().remove(resource)
            table = self._storage.store.drop(resource.storage)
            if table is not None:
                # Watches outlive their kind for a moment, as with the real server.
                asyncio.get_running_loop().call_later(_LINGER_SECONDS, table.close)

    def _finish_deletion(self, name: str, version: Version) -> None:
        """Delete the objects; when none is left, let the CRD go."""
        crd = version.object
        if _CLEANUP not in (crd["metadata"].get("finalizers") or ()):
            return
        self._serve(name, crd)
        served = self._served.get(name) or []
        operations = self._storage.operations
        left = 0
        if served:
            resource = served[0]
            call = self._storage.system_call("crd-finalizer")
            table = self._storage.store.table(resource.storage)
            progress = {
                "type": "Terminating",
                "status": "True",
                "lastTransitionTime": self._storage.timestamp(),
                "reason": "InstanceDeletionInProgress",
                "message": "CustomResource deletion is in progress",
            }
            current = next(
                item for item in crd["status"]["conditions"] if item["type"] == "Terminating"
            )
            if current["reason"] != progress["reason"]:
                self._write_status(version, with_condition(crd, progress))
                return
            for item in list(table.in_namespace("")):
                if "deletionTimestamp" in item.object["metadata"]:
                    continue
                try:
                    operations.delete(resource, *item.key, DeleteOptions(), call)
                except ApiError as error:
                    if not error.is_not_found:
                        raise
            left = len(table.items)
        if not left:
            metadata = dict(crd["metadata"])
            rest = [item for item in metadata["finalizers"] if item != _CLEANUP]
            store = self._storage.store
            if rest:
                metadata["finalizers"] = rest
                store.put(
                    store.table(CRDS), version.key, {**crd, "metadata": metadata}, version.managed
                )
            else:
                store.remove(store.table(CRDS), version.key)
