"""How the cluster's definitions differ from this client's: by the fields that they know. Pure.

Descriptions and notations may differ between releases without harm; a field that only one side
knows is what makes the other side's writes fail or vanish.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def fields_of(schema: Json, path: str = "") -> Iterator[str]:
    """The path of every field of a structural schema."""
    for name, inner in (schema.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        yield here
        yield from fields_of(inner, here)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(inner := schema.get(key), dict):
            yield from fields_of(inner, path + mark)


def served_schema(definition: Json, version: str) -> Json | None:
    """The schema of a version that is served; None where it is not."""
    for each in definition["spec"]["versions"]:
        if each["name"] == version and each.get("served"):
            found: Json = (each.get("schema") or {}).get("openAPIV3Schema") or {}
            return found
    return None


def differences(mine: Json, theirs: Json) -> tuple[list[str], list[str]]:
    """Fields that the cluster lacks, and fields that it has beyond mine; the outermost of each."""
    ours, cluster = set(fields_of(mine)), set(fields_of(theirs))
    return _outermost(ours - cluster), _outermost(cluster - ours)


def _outermost(paths: set[str]) -> list[str]:
    return sorted(
        path for path in paths if not any(path.startswith(f"{each}.") for each in paths - {path})
    )
