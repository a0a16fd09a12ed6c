"""Strategic merge patch: merge patch that knows which lists merge by key.

Directives: ``$patch: delete|replace|merge``, ``$deleteFromPrimitiveList/FIELD``,
``$setElementOrder/FIELD``, ``$retainKeys``.
"""

from __future__ import annotations

from typing import Any

from penstock_cluster.registry.model.errors import Json, bad_request, plain_internal
from penstock_cluster.registry.model.fieldset import key_text
from penstock_cluster.registry.model.shape import UNTYPED, Shape

_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_merge(shape: Shape, target: Json, patch: Json) -> Json:
    """``target`` with a strategic merge patch; nothing of ``target`` is changed in place."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: _plain(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(target)
    retained = patch.get("$retainKeys")
    if retained is not None:
        _check_list(retained, "retainKeys")
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        child = shape.child(key)
        if value is None:
            merged.pop(key, None)
        elif type(value) is dict:
            merged[key] = _merge_map(child, merged.get(key), value)
        elif type(value) is list and child.code == "list" and child.merges:
            order = patch.get(_ORDER + key)
            merged[key] = _merge_list(child, merged.get(key) or [], value, order)
        else:
            merged[key] = value
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            _check_list(value, "primitive list")
            field = key[len(_DELETE_FROM) :]
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif key.startswith(_ORDER):
            _check_list(value, "setElementOrder list")
            field = key[len(_ORDER) :]
            if field not in patch and merged.get(field):
                merged[field] = _arranged(shape.child(field), merged[field], value, merged[field])
    return merged


def _check_list(value: Any, what: str) -> None:
    if type(value) is not list:
        raise bad_request(f"invalid patch format of {what}")


def _merge_map(shape: Shape, target: Any, patch: Json) -> Json:
    if type(target) is not dict:
        target = {}
    if shape.code in ("object", "map", "any"):
        return strategic_merge(shape, target, patch)
    return patch


def _plain(value: Any) -> Any:
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items() if not key.startswith("$")}
    return value


def _merge_list(shape: Shape, target: list[Any], patch: list[Any], order: Any) -> list[Any]:
    if not shape.merge_key:
        merged = [*target, *(item for item in patch if item not in target)]
        return _arranged(shape, merged, patch if order is None else order, target)
    if any(type(item) is dict and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if type(item) is not dict or "$patch" not in item]
    merged = list(target)
    for item in patch:
        key = _key(shape, item)
        at = next((index for index, old in enumerate(merged) if _matches(shape, old, key)), -1)
        if item.get("$patch") == "delete":
            merged = [old for old in merged if not _matches(shape, old, key)]
        elif at >= 0:
            merged[at] = strategic_merge(shape.items or UNTYPED, merged[at], item)
        else:
            merged.append(strategic_merge(shape.items or UNTYPED, {}, item))
    return _arranged(shape, merged, patch if order is None else order, target)


def _identity(shape: Shape, item: Any) -> str:
    """What tells an element from others: its merge key, or itself."""
    if shape.merge_key and type(item) is dict:
        return key_text(item.get(shape.merge_key))
    return key_text(item)


def _arranged(shape: Shape, merged: list[Any], order: Any, target: list[Any]) -> list[Any]:
    """A merged list in the real server's order.

    Elements that ``order`` names stand in its order, the others in that of the server; an element
    of the second kind comes first only where the server had it before the next of the first kind.
    """
    if type(order) is not list:
        return merged
    rank = {_identity(shape, item): index for index, item in enumerate(order)}
    place = {_identity(shape, item): index for index, item in enumerate(target)}
    named = sorted(
        (item for item in merged if _identity(shape, item) in rank),
        key=lambda item: rank[_identity(shape, item)],
    )
    others = [item for item in merged if _identity(shape, item) not in rank]
    result: list[Any] = []
    waiting = iter(named)
    following = next(waiting, None)
    for item in others:
        while following is not None:
            left, right = _identity(shape, item), _identity(shape, following)
            if left in place and right in place and place[left] < place[right]:
                break
            result.append(following)
            following = next(waiting, None)
        result.append(item)
    if following is not None:
        result.append(following)
        result.extend(waiting)
    return result


def _key(shape: Shape, item: Any) -> Any:
    if type(item) is not dict:
        raise bad_request(f"cannot merge {item!r} into a list whose elements have a merge key")
    if item.get(shape.merge_key) is None:
        shown = " ".join(f"{key}:{value}" for key, value in sorted(item.items()))
        raise plain_internal(
            f"map: map[{shown}] does not contain declared merge key: {shape.merge_key}"
        )
    return item[shape.merge_key]


def _matches(shape: Shape, item: Any, key: Any) -> bool:
    return type(item) is dict and item.get(shape.merge_key) == key
