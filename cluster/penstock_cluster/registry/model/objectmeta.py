"""Metadata: what the server sets, what clients may, and the checks on both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock_cluster.registry.model import names
from penstock_cluster.registry.model.documents import compact
from penstock_cluster.registry.model.errors import Faults, Json

NameRule = Callable[[str], list[str]]

_SYSTEM = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "resourceVersion",
)
_STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")
_REFERENCE_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def for_create(metadata: Json) -> Json:
    """What a client's metadata contribute to a new object."""
    return {key: value for key, value in metadata.items() if key not in _SYSTEM}


def for_update(metadata: Json, old: Json) -> Json:
    """A client's metadata with the server's own fields as they were."""
    kept = {key: value for key, value in metadata.items() if key not in _SYSTEM}
    for key in ("name", "namespace", "generateName"):
        if key in old and key not in kept:
            kept[key] = old[key]
    for key in _SYSTEM:
        if key in old:
            kept[key] = old[key]
    return kept


def check(metadata: Json, rule: NameRule, faults: Faults, *, custom: bool) -> bool:
    """Check the metadata of a new object; the result says whether CEL rules may run."""
    complete = True
    generate = metadata.get("generateName")
    if generate:
        for why in rule(generate.removesuffix("-")):
            faults.invalid("metadata.generateName", f'"{generate}"', why)
    name = metadata.get("name", "")
    if not name:
        faults.required("metadata.name", "name or generateName is required")
        complete = False
    else:
        for why in rule(name):
            faults.invalid("metadata.name", compact(name), why)
    complete &= check_common(metadata, faults, custom=custom)
    return complete


def check_common(metadata: Json, faults: Faults, *, custom: bool) -> bool:
    """Labels, annotations, owners, finalizers."""
    before = len(faults.items)
    labels = metadata.get("labels")
    if labels:
        names.check_labels(labels, "metadata.labels", faults)
    annotations = metadata.get("annotations")
    if annotations:
        names.check_annotations(annotations, "metadata.annotations", faults)
    owners = metadata.get("ownerReferences")
    if owners:
        _check_owners(owners, faults)
    for finalizer in metadata.get("finalizers") or ():
        for why in names.qualified_name_faults(finalizer):
            faults.invalid("metadata.finalizers", f'"{finalizer}"', why)
        if not custom and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            faults.invalid(
                "metadata.finalizers",
                f'"{finalizer}"',
                "name is neither a standard finalizer name nor is it fully qualified",
            )
    return not any(
        fault.reason in ("FieldValueTooLong", "FieldValueRequired")
        for fault in faults.items[before:]
    )


def _check_owners(owners: list[Json], faults: Faults) -> None:
    path = "metadata.ownerReferences"
    controller: Json | None = None
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                step = "apiVersion" if field == "apiVersion" else field
                why = "version must not be empty" if field == "apiVersion" else "must not be empty"
                faults.invalid(f"{path}.{step}", '""', why)
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            faults.invalid(path, _references([owner]), "is disallowed from being an owner")
        if not owner.get("controller"):
            continue
        if controller is not None:
            shown = f"{controller['kind']}/{controller['name']} and {owner['kind']}/{owner['name']}"
            faults.invalid(
                path,
                _references(owners),
                'Only one reference can have Controller set to true. Found "true" in references '
                f"for {shown}",
            )
        controller = owner


def _references(owners: list[Json]) -> str:
    ordered = [{key: ref[key] for key in _REFERENCE_FIELDS if key in ref} for ref in owners]
    texts = []
    for reference in ordered:
        pairs = [f"{compact(key)}:{compact(value)}" for key, value in reference.items()]
        texts.append("{" + ",".join(pairs) + "}")
    return "[" + ",".join(texts) + "]"


def check_update(metadata: Json, old: Json, faults: Faults, *, custom: bool) -> bool:
    """Check changed metadata; the result says whether CEL rules may run."""
    complete = True
    for field in ("labels", "annotations", "ownerReferences", "finalizers"):
        if metadata.get(field) != old.get(field):
            complete = check_common(metadata, faults, custom=custom)
            break
    if "deletionTimestamp" in old:
        known = set(old.get("finalizers") or ())
        added = [name for name in metadata.get("finalizers") or () if name not in known]
        if added:
            shown = ", ".join(f'"{name}"' for name in added)
            faults.forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new "
                f"finalizers []string{{{shown}}}",
            )
    for field in ("name", "namespace", "uid"):
        if metadata.get(field) != old.get(field):
            faults.invalid(f"metadata.{field}", compact(metadata.get(field)), "field is immutable")
    return complete


def finalizer_warnings(metadata: Json, known: Any = ()) -> list[str]:
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name to avoid '
        "accidental conflicts with other finalizer writers"
        for name in metadata.get("finalizers") or ()
        if "/" not in name and name not in _STANDARD_FINALIZERS and name not in known
    ]
