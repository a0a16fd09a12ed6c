"""``metadata.managedFields``: which manager owns which fields, kept current by every write.

Entries are immutable and kept beside the object, not inside it; writes by the same controller to
thousands of objects share their field sets (interned by content).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import orjson

from penstock_cluster.registry.model import fieldset
from penstock_cluster.registry.model.errors import ApiError, Json
from penstock_cluster.registry.model.fieldset import FieldSet
from penstock_cluster.registry.model.shape import Shape

#: Fields that nobody owns.
_STRIPPED = frozenset((".", "f:apiVersion", "f:kind"))
_STRIPPED_METADATA = frozenset(
    (
        ".",
        "f:name",
        "f:namespace",
        "f:creationTimestamp",
        "f:selfLink",
        "f:uid",
        "f:generation",
        "f:managedFields",
        "f:resourceVersion",
        "f:deletionTimestamp",
        "f:deletionGracePeriodSeconds",
    )
)
_MANAGERS_LIMIT = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """One manager's fields."""

    manager: str
    operation: str  # Apply or Update
    api_version: str
    time: str
    subresource: str
    fields: bytes

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self.manager, self.operation, self.api_version, self.subresource

    @property
    def set(self) -> FieldSet:
        return parse_fields(self.fields)

    def external(self) -> Json:
        entry: Json = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": orjson.Fragment(self.fields),
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


Entries = tuple[Entry, ...]


@lru_cache(maxsize=1024)
def parse_fields(text: bytes) -> FieldSet:
    # `orjson` gives Any; what was written is a field set.
    return orjson.loads(text)  # type: ignore[no-any-return]


@lru_cache(maxsize=4096)
def _interned(text: bytes) -> bytes:
    return text


def write_fields(fields: FieldSet) -> bytes:
    return _interned(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS))


@lru_cache(maxsize=4096)
def _entry(
    manager: str, operation: str, api_version: str, time: str, subresource: str, fields: bytes
) -> Entry:
    return Entry(manager, operation, api_version, time, subresource, fields)


def external(entries: Entries) -> list[Json]:
    """The entries as clients see them; serialise with orjson (the field sets are fragments)."""
    return [entry.external() for entry in entries]


def plain(entries: Entries) -> list[Json]:
    """The entries as plain JSON data."""
    return [{**entry.external(), "fieldsV1": dict(entry.set)} for entry in entries]


def from_external(listed: Iterable[Json]) -> Entries | None:
    """Entries a client sent; ``None`` when they cannot be read (then they are ignored)."""
    entries = []
    for item in listed:
        fields = item.get("fieldsV1")
        if item.get("operation") not in ("Apply", "Update") or type(fields) is not dict:
            return None
        entries.append(
            Entry(
                str(item.get("manager", "")),
                item["operation"],
                str(item.get("apiVersion", "")),
                str(item.get("time", "")),
                str(item.get("subresource", "")),
                write_fields(fields),
            )
        )
    return sort(entries)


def sort(entries: Iterable[Entry]) -> Entries:
    order = lambda entry: (  # noqa: E731  one expression, used once below
        entry.operation,
        entry.time,
        entry.manager,
        entry.api_version,
        entry.subresource,
    )
    return tuple(sorted(entries, key=order))


def strip(fields: FieldSet | None) -> FieldSet | None:
    """Without the fields that nobody owns."""
    if fields is None:
        return None
    kept = {key: node for key, node in fields.items() if key not in _STRIPPED}
    metadata = kept.get("f:metadata")
    if metadata is not None:
        rest = {key: node for key, node in metadata.items() if key not in _STRIPPED_METADATA}
        if rest:
            kept["f:metadata"] = rest
        else:
            del kept["f:metadata"]
    return kept or None


def after_update(
    entries: Entries,
    shape: Shape,
    old: Json,
    new: Json,
    *,
    manager: str,
    api_version: str,
    subresource: str,
    now: str,
) -> Entries:
    """Ownership after a create, replace or patch by ``manager``: it owns what it changed."""
    touched, gone = fieldset.compare(shape, old, new)
    touched = strip(touched)
    gone = strip(gone)
    if touched is None and gone is None:
        return entries
    mine = (manager, "Update", api_version, subresource)
    kept: list[Entry] = []
    own: Entry | None = None
    for entry in entries:
        if entry.identity == mine:
            own = entry
            continue
        if entry.operation == "Update" or entry.operation == "Apply":
            rest = fieldset.difference(entry.set, touched)
            rest = fieldset.difference(rest, gone)
            if rest is None:
                continue
            fields = write_fields(rest)
            kept.append(entry if fields == entry.fields else replace(entry, fields=fields))
    fields_of_mine = fieldset.union(own.set if own else None, touched)
    fields_of_mine = fieldset.difference(fields_of_mine, gone)
    if fields_of_mine is not None:
        text = write_fields(fields_of_mine)
        if own is not None and text == own.fields:
            kept.append(own)
        else:
            kept.append(_entry(*mine[:3], now, subresource, text))
    return sort(_capped(kept))


def _capped(entries: list[Entry]) -> list[Entry]:
    """At most ten entries of updates; the oldest are merged into one."""
    updates = [entry for entry in entries if entry.operation == "Update"]
    if len(updates) <= _MANAGERS_LIMIT:
        return entries
    updates.sort(key=lambda entry: entry.time)
    surplus = updates[: len(updates) - _MANAGERS_LIMIT + 1]
    merged: dict[tuple[str, str], Entry] = {}
    for entry in surplus:
        place = (entry.api_version, entry.subresource)
        if place in merged:
            fields = fieldset.union(merged[place].set, entry.set) or {}
            merged[place] = replace(merged[place], fields=write_fields(fields), time=entry.time)
        else:
            merged[place] = replace(entry, manager="ancient-changes")
    return [entry for entry in entries if entry not in surplus] + list(merged.values())


def conflict(conflicts: list[tuple[Entry, str]]) -> ApiError:
    """The 409 of an apply that would change fields of other managers."""
    named = [(_printed(entry), path) for entry, path in conflicts]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, path in named
    ]
    if len(named) == 1:
        manager, path = named[0]
        message = f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    else:
        lines = []
        for manager in sorted({manager for manager, _ in named}):
            lines.append(f"conflicts with {manager}:")
            lines.extend(f"- {path}" for other, path in named if other == manager)
        message = f"Apply failed with {len(named)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, {"causes": causes})


def _printed(entry: Entry) -> str:
    text = f'"{entry.manager}"'
    if entry.subresource:
        text += f' with subresource "{entry.subresource}"'
    if entry.operation == "Update":
        text += f" using {entry.api_version}"
    return text
