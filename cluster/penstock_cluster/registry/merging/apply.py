"""Server-side apply: merging an applied configuration and settling who owns which fields.

The rules are those of structured merge: a manager owns exactly what its last configuration spells
out; changing another manager's field is a conflict unless forced; leaving out a field that nobody
else owns removes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock_cluster.registry.merging import managed, takeover
from penstock_cluster.registry.merging.managed import Entries, Entry
from penstock_cluster.registry.model import fieldset
from penstock_cluster.registry.model.documents import MISSING
from penstock_cluster.registry.model.errors import Json, plain_internal
from penstock_cluster.registry.model.fieldset import FieldSet
from penstock_cluster.registry.model.shape import Shape


def check_typed(shape: Shape, patch: Json, *, label: str) -> None:
    """Refuse a configuration that does not fit the type (a 500, as the real server has it)."""
    fault = _fault(shape, patch, "")
    if fault:
        raise plain_internal(f"failed to create typed patch object ({label}): {fault}")


def _fault(shape: Shape, value: Any, path: str) -> str:
    if value is None or shape.code == "any":
        return ""
    if shape.code in ("object", "map"):
        if type(value) is not dict:
            return f"{path}: expected map, got &{{{value}}}"
        for key, item in value.items():
            if shape.code == "object" and key not in shape.fields and not shape.open:
                return f"{path}.{key}: field not declared in schema"
            fault = _fault(shape.child(key), item, f"{path}.{key}")
            if fault:
                return fault
        return ""
    if shape.code == "list":
        if type(value) is not list:
            return f"{path}: expected list, got &{{{value}}}"
        return _list_fault(shape, value, path)
    if shape.code in ("string", "time", "micro-time", "bytes"):
        if type(value) is not str:
            return f"{path}: expected string, got &value.valueUnstructured{{Value:{value}}}"
    elif shape.code in ("integer", "number"):
        if type(value) not in (int, float):
            return f"{path}: expected numeric (int or float), got string"
    elif shape.code == "boolean" and type(value) is not bool:
        return f"{path}: expected boolean, got &value.valueUnstructured{{Value:{value}}}"
    return ""


def _list_fault(shape: Shape, value: list[Any], path: str) -> str:
    seen: set[str] = set()
    for index, item in enumerate(value):
        step = f"{path}[{index}]"
        if shape.list_kind == "map":
            if type(item) is not dict:
                return f"{step}: associative list with keys has an element that is not a map"
            for key in shape.keys:
                if item.get(key) is None and key not in shape.key_defaults:
                    return (
                        f"{path}: element {index}: associative list with keys has an element that "
                        f'omits key field "{key}" (and doesn\'t have default value)'
                    )
            key = fieldset.element_key(shape, item)
            step = path + next(fieldset.paths({key: {}}))
        elif shape.list_kind == "set":
            key = "v:" + fieldset.key_text(item)
        else:
            key = ""
        if key:
            if key in seen:
                shown = next(fieldset.paths({key: {}}))
                return f"{path}: duplicate entries for key {shown}"
            seen.add(key)
        fault = _fault(shape.element, item, step)
        if fault:
            return fault
    return ""


def merge(shape: Shape, live: Any, patch: Any) -> Any:
    """``live`` with what ``patch`` spells out."""
    if fieldset.is_granular_map(shape, live) and fieldset.is_granular_map(shape, patch):
        merged = dict(live)
        for key, item in patch.items():
            merged[key] = merge(shape.child(key), live[key], item) if key in live else item
        return merged
    if type(live) is list and type(patch) is list and shape.code == "list":
        if shape.list_kind == "set":
            return _merge_lists(live, patch, fieldset.key_text, lambda _, item: item)
        if shape.list_kind == "map":
            return _merge_lists(
                live,
                patch,
                lambda item: fieldset.element_key(shape, item),
                lambda old, new: merge(shape.element, old, new),
            )
    return patch


def _merge_lists(live: list[Any], patch: list[Any], key_of: Any, both: Any) -> list[Any]:
    """Elements of both, in the order of the patch where it has one."""
    old = {key_of(item): item for item in live}
    new = {key_of(item): item for item in patch}
    left, right = list(old), list(new)
    merged: list[Any] = []
    done: set[str] = set()
    at_left = at_right = 0
    while at_left < len(left) or at_right < len(right):
        if at_left < len(left):
            key = left[at_left]
            if key in done:
                at_left += 1
                continue
            if key not in new:
                merged.append(old[key])
                at_left += 1
                continue
        if at_right < len(right):
            key = right[at_right]
            at_right += 1
            done.add(key)
            merged.append(both(old[key], new[key]) if key in old else new[key])
    return merged


def apply(
    shape: Shape,
    live: Json,
    entries: Entries,
    patch: Json,
    *,
    manager: str,
    api_version: str,
    subresource: str,
    force: bool,
    now: str,
    reset: tuple[str, ...],
) -> tuple[Json, Entries]:
    """The object and the ownership after ``manager`` applied ``patch``.

    ``reset``: top-level fields that this path does not write; the patch neither sets nor owns them.
    Raises :class:`ApiError` 409 for conflicts unless ``force``.
    """
    config = {key: value for key, value in patch.items() if key not in reset}
    owned = managed.strip(fieldset.owned(shape, config, added=False))
    own: Entry | None = None
    others: list[Entry] = []
    for entry in entries:
        mine = (
            entry.manager == manager
            and entry.operation == "Apply"
            and entry.subresource == subresource
        )
        if mine:
            own = entry
        else:
            others.append(entry)
    merged = merge(shape, live, config)
    touched, _ = fieldset.compare(shape, live, merged)
    touched = managed.strip(touched)
    allowed = takeover.own_fields(shape, live) if manager == takeover.MANAGER else None
    others = _settle_conflicts(others, touched, allowed, force=force)
    merged = _prune(shape, merged, own, owned, others)
    if manager == takeover.MANAGER:
        merged = takeover.follow(merged, config)
    _, gone = fieldset.compare(shape, live, merged)
    gone = managed.strip(gone)
    kept = _without(others, gone)
    if owned is not None:
        text = managed.write_fields(owned)
        if own is not None and own.fields == text and own.api_version == api_version:
            kept.append(own)
        else:
            kept.append(Entry(manager, "Apply", api_version, now, subresource, text))
    return merged, managed.sort(kept)


def _settle_conflicts(
    others: list[Entry], touched: FieldSet | None, allowed: FieldSet | None, *, force: bool
) -> list[Entry]:
    """The other managers without what they lose; fields in ``allowed`` are no conflict."""
    conflicts: list[tuple[Entry, str]] = []
    settled: list[Entry] = []
    for entry in others:
        shared = fieldset.intersection(entry.set, touched)
        if shared is None:
            settled.append(entry)
            continue
        disputed = fieldset.difference(shared, allowed)
        conflicts.extend((entry, path) for path in fieldset.paths(disputed))
        rest = fieldset.difference(entry.set, shared)
        if rest is not None:
            settled.append(replace(entry, fields=managed.write_fields(rest)))
    if conflicts and not force:
        raise managed.conflict(conflicts)
    return settled


def _prune(
    shape: Shape, merged: Json, own: Entry | None, owned: FieldSet | None, others: list[Entry]
) -> Json:
    """Without the fields that the last configuration had, this one has not and nobody else owns."""
    if own is None:
        return merged
    gone = fieldset.difference(own.set, owned)
    kept = owned
    for entry in others:
        gone = fieldset.difference(gone, entry.set)
        kept = fieldset.union(kept, entry.set)
    if gone is None:
        return merged
    left = fieldset.remove(shape, merged, gone, kept, MISSING)
    return {} if left is MISSING else left


def _without(entries: list[Entry], gone: FieldSet | None) -> list[Entry]:
    kept = []
    for entry in entries:
        rest = fieldset.difference(entry.set, gone)
        if rest is None:
            continue
        text = managed.write_fields(rest)
        kept.append(entry if text == entry.fields else replace(entry, fields=text))
    return kept
