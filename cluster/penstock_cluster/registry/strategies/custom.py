"""Custom resources: their strategy is their CRD."""

from __future__ import annotations

from typing import Any

from penstock_cluster.registry.admission.cel import RuleSet
from penstock_cluster.registry.model import objectmeta, typed
from penstock_cluster.registry.model.call import Call
from penstock_cluster.registry.model.documents import read
from penstock_cluster.registry.model.errors import Faults, FieldFault, Json, ResourceName, invalid
from penstock_cluster.registry.model.shape import Shape
from penstock_cluster.registry.model.structural import NOT_CHECKED, Schema, Validation
from penstock_cluster.registry.model.structural_sharing import identical
from penstock_cluster.registry.objects.resource import Resource, Strategy, wrong_version
from penstock_cluster.registry.objects.store import Store

_TOP = ("apiVersion", "kind", "metadata")


class CustomStrategy(Strategy):
    """The strategy of one version of a CRD."""

    counts_generation = True
    requires_version = True
    status_takes_metadata = False

    def __init__(
        self, schema: Schema, meta_shape: Shape, *, status: bool, replicas_path: tuple[str, ...]
    ) -> None:
        self.schema = schema
        self.has_status = status
        self._meta_shape = meta_shape
        self._replicas_path = replicas_path
        self._rules = RuleSet(schema)

    def decode(self, resource: Resource, document: Json) -> tuple[Json, list[str]]:
        kind, api_version = document.get("kind"), document.get("apiVersion")
        unknown: list[str] = []
        if api_version and api_version != resource.api_version:
            error = wrong_version(api_version, resource)
            error.unknown = [key for key in document if key not in _TOP]
            raise error
        if kind and kind != resource.kind:
            fault = FieldFault(
                "kind", "FieldValueInvalid", f'Invalid value: "{kind}": must be {resource.kind}'
            )
            name = read(document, ("metadata", "name"), "")
            raise invalid(ResourceName(resource.group, "", str(kind)), name, [fault])
        metadata = document.get("metadata")
        decoded: Json = {"apiVersion": resource.api_version, "kind": resource.kind}
        if metadata is None:
            decoded["metadata"] = {}
        elif type(metadata) is dict:
            decoded["metadata"], strange = typed.decode(self._meta_shape, metadata)
            unknown.extend(f"metadata.{path}" for path in strange)
        else:
            raise typed.DecodeError(
                "json: cannot unmarshal string into Go value of type v1.ObjectMeta"
            )
        content = {key: value for key, value in document.items() if key not in _TOP}
        admitted = self.schema.admit(content, "", unknown)
        for key, value in admitted.items():
            if key not in _TOP:
                decoded[key] = value
        return decoded, sorted(unknown)

    def default(self, document: Json) -> None:
        done = self.schema.defaulted(document)
        if done is not document:
            document.update(done)

    def prepare_update(self, new: Json, old: Json, subresource: str, call: Call) -> None:
        if subresource == "status":
            status = new.get("status")
            new.clear()
            new.update(old)
            new["metadata"] = dict(old["metadata"])
            if status is None:
                new.pop("status", None)
            else:
                new["status"] = status
        elif self.has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]

    def validate_create(self, document: Json, faults: Faults, call: Call, store: Store) -> None:
        complete = objectmeta.check(document["metadata"], self.name_faults, faults, custom=True)
        call.warnings.extend(objectmeta.finalizer_warnings(document["metadata"]))
        self._check(document, None, "", faults, complete=complete)

    def validate_update(
        self, new: Json, old: Json, subresource: str, faults: Faults, store: Store
    ) -> None:
        complete = True
        if subresource != "status":
            # The real server checks the metadata of a changed custom resource twice.
            for _ in range(2):
                complete &= objectmeta.check_update(
                    new["metadata"], old["metadata"], faults, custom=True
                )
        self._check(new, old, subresource, faults, complete=complete)

    def _check(
        self, new: Json, old: Json | None, subresource: str, faults: Faults, *, complete: bool
    ) -> None:
        validation = Validation(faults, "status" if subresource == "status" else "")
        if subresource == "status":
            status_schema = self.schema.properties.get("status")
            if status_schema is not None and "status" in new:
                validation.check(status_schema, new["status"], "")
                validation.check_lists(status_schema, new["status"], "")
        else:
            validation.check(self.schema, new, "")
            for key, child in self.schema.properties.items():
                if key not in _TOP and key in new:
                    validation.check_lists(child, new[key], key)
            self._check_replicas(new, faults)
        if validation.blocks_rules or not complete:
            faults.add("<nil>", "FieldValueInvalid", f"Invalid value: null: {NOT_CHECKED}")
            return
        self._rules.check(new, old, faults)

    def _check_replicas(self, new: Json, faults: Faults) -> None:
        if not self._replicas_path:
            return
        value: Any = read(new, self._replicas_path)
        path = "." + ".".join(self._replicas_path)
        if value is None:
            return
        if type(value) is not int:
            form = "float64" if type(value) is float else "string"
            why = f"{path} accessor error: {value} is of the type {form}, expected int64"
            faults.invalid(path, "0", why)
        elif value < 0:
            faults.invalid(path, str(value), "should be a non-negative integer")

    def desired_changed(self, new: Json, old: Json) -> bool:
        ignored = ("metadata", "status") if self.has_status else ("metadata",)
        return any(
            not identical(new.get(key), old.get(key)) for key in {*new, *old} if key not in ignored
        )

    def reset_fields(self, subresource: str) -> tuple[str, ...]:
        if not self.has_status:
            return ()
        if subresource == "status":
            return tuple(
                key
                for key in (*self.schema.properties, "metadata")
                if key not in ("status", "apiVersion", "kind")
            )
        return ("status",)
