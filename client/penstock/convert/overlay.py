"""One part of a manifest laid over another, as strategic merge patches do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def overlaid(below: Any, top: Any) -> Any:
    """Maps are merged, lists of named things by name; all else of the upper one replaces."""
    if isinstance(below, Mapping) and isinstance(top, Mapping):
        merged = dict(below)
        for key, value in top.items():
            merged[key] = overlaid(below[key], value) if key in below else value
        return merged
    if isinstance(below, list) and isinstance(top, list) and _named(below) and _named(top):
        by_name = {item["name"]: item for item in below}
        for item in top:
            name = item["name"]
            by_name[name] = overlaid(by_name[name], item) if name in by_name else item
        return list(by_name.values())
    return top


def _named(items: list[Any]) -> bool:
    return all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in items)
