"""JSON documents in memory: copying, reading paths, and the forms the store and clients share.

An object in the store is never changed in place. Whoever wants to change one takes a copy with
:func:`thaw`; whoever changes one branch copies the dicts along the path (:func:`with_value`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import orjson

Json = dict[str, Any]

MISSING: Any = object()

DEPTH_LIMIT: Final = 200
"""No object of any kind comes near it (the real API server stops at 10,000)."""

T = TypeVar("T")


def thaw(document: T) -> T:
    """A deep copy of JSON data that the caller may change."""
    return _copy(document)  # type: ignore[no-any-return]  # a copy has the type of what is copied


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value


def dumps(document: Any) -> bytes:
    return orjson.dumps(document)


def compact(document: Any) -> str:
    """Canonical text: sorted keys, no spaces (the form Go prints maps in)."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()


def read(document: Any, path: Sequence[str], default: Any = None) -> Any:
    """The value at ``path`` of nested maps, or ``default`` where a step is missing."""
    for key in path:
        if type(document) is not dict:
            return default
        document = document.get(key, MISSING)
        if document is MISSING:
            return default
    return document


def with_value(document: Json, path: Sequence[str], value: Any) -> Json:
    """A copy with ``value`` at ``path``; only the dicts along the path are copied."""
    head, rest = path[0], path[1:]
    changed = dict(document)
    if rest:
        below = document.get(head)
        changed[head] = with_value(below if type(below) is dict else {}, rest, value)
    else:
        changed[head] = value
    return changed


def without(document: Json, path: Sequence[str]) -> Json:
    """A copy without the value at ``path``; the document itself when there is none."""
    head, rest = path[0], path[1:]
    if head not in document:
        return document
    changed = dict(document)
    if rest:
        below = document[head]
        if type(below) is not dict:
            return document
        changed[head] = without(below, rest)
    else:
        del changed[head]
    return changed
