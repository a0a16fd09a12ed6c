"""The recorded answers of a real API server; data/README.md says what is in the files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Vector:
    """One request, what existed before it, and what the server answered.

    Attributes:
        facts: the record, with the abbreviations of its objects resolved.
    """

    name: str
    facts: dict[str, Any]

    @property
    def accepted(self) -> bool:
        return bool(self.facts["code"] < 300)

    @property
    def fields(self) -> set[str]:
        """The fields that the server named, less what is about the request as a whole."""
        named = self.facts.get("fields") or [self.facts.get("field") or "<nil>"]
        return {field for field in named if field != "<nil>" and not field.startswith(".")}


def load(file_name: str = "vectors.json") -> list[Vector]:
    """Every vector of a file, in the order in which it was recorded."""
    content = json.loads((DATA / file_name).read_text(encoding="utf-8"))
    return [
        Vector(record["name"], _resolved(record, content["bases"])) for record in content["vectors"]
    ]


def _resolved(record: dict[str, Any], bases: dict[str, Any]) -> dict[str, Any]:
    facts = dict(record)
    for key in ("before", "object", "result"):
        if facts.get(key) is None:
            facts[key] = None
            continue
        base, *patch = facts[key]
        changed = _patched(bases[base], patch[0]) if patch else bases[base]
        facts[key] = changed if key == "result" else expand(changed)
    return facts


def _patched(target: Any, patch: Any) -> Any:
    """A JSON merge patch in which $null and $empty stand for what a patch cannot say."""
    if not isinstance(patch, dict):
        return _literal(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _patched(merged.get(key), value)
    return merged


def _literal(value: Any) -> Any:
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    return {"$null": None, "$empty": {}}.get(value, value) if isinstance(value, str) else value


def expand(value: Any, index: int | None = None) -> Any:
    """Write out the abbreviations of large values; ``#`` in them is the index from 0."""
    if isinstance(value, str):
        return value if index is None else value.replace("#", str(index))
    if isinstance(value, list):
        return [expand(item, index) for item in value]
    if not isinstance(value, dict):
        return value
    if "$text" in value:
        count, unit = value["$text"]
        return unit * count
    if "$list" in value:
        count, item = value["$list"]
        return [expand(item, at) for at in range(count)]
    if "$map" in value:
        count, key, item = value["$map"]
        return {expand(key, at): expand(item, at) for at in range(count)}
    return {key: expand(item, index) for key, item in value.items()}
