"""Sets of fields in the form of ``FieldsV1``: who owns what, and what a change touched.

A set is a nested dict as it travels in ``managedFields``: ``f:NAME`` is a field, ``k:{...}`` an
element of a keyed list, ``v:...`` a member of a set, ``i:N`` an index; an empty dict is a member
without members below it, and ``.`` marks a member that has some. ``None`` is the empty set. Sets
are never changed in place: they are shared between versions of an object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from penstock_cluster.registry.model.shape import UNTYPED, Shape
from penstock_cluster.registry.model.structural_sharing import identical

Json = dict[str, Any]
FieldSet = dict[str, Any]

_SELF: FieldSet = {}


def key_text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def element_key(shape: Shape, element: Any) -> str:
    """The ``k:{...}`` of an element of a keyed list."""
    keys = {}
    for key in shape.keys:
        value = element.get(key) if type(element) is dict else None
        keys[key] = shape.key_defaults.get(key) if value is None else value
    return "k:" + key_text(keys)


def _build(member: bool, below: FieldSet) -> FieldSet | None:
    if not below:
        return _SELF if member else None
    if member:
        below["."] = _SELF
    return below


def is_member(node: FieldSet) -> bool:
    return not node or "." in node


def is_granular_map(shape: Shape, value: Any) -> bool:
    return type(value) is dict and not shape.atomic and shape.code in ("object", "map", "any")


def owned(shape: Shape, value: Any, *, added: bool) -> FieldSet:
    """The members that ``value`` consists of.

    ``added``: as a change that brings it into being sees it (maps and lists are members
    themselves); otherwise as an applied configuration owns it (only what it spells out).
    """
    if is_granular_map(shape, value):
        if not value:
            return _SELF
        below = {
            f"f:{key}": owned(shape.child(key), item, added=added) for key, item in value.items()
        }
        return _build(added, below) or _SELF
    if type(value) is list and shape.code == "list" and shape.list_kind != "atomic" and value:
        if shape.list_kind == "set":
            below = {"v:" + key_text(item): _SELF for item in value}
        else:
            below = {}
            for item in value:
                node = owned(shape.element, item, added=added)
                below[element_key(shape, item)] = {**node, ".": _SELF} if node else _SELF
        return _build(added, below) or _SELF
    return _SELF


def compare(shape: Shape, old: Any, new: Any) -> tuple[FieldSet | None, FieldSet | None]:
    """What a change from ``old`` to ``new`` added or modified, and what it removed."""
    if old is new:
        return None, None
    if is_granular_map(shape, old) and is_granular_map(shape, new):
        return _compare_maps(shape, old, new)
    if type(old) is list and type(new) is list and shape.code == "list":
        if shape.list_kind == "set":
            return _compare_sets(old, new)
        if shape.list_kind == "map":
            return _compare_keyed(shape, old, new)
    if identical(old, new):
        return None, None
    return owned(shape, new, added=True), None


def _compare_maps(shape: Shape, old: Json, new: Json) -> tuple[FieldSet | None, FieldSet | None]:
    changed: FieldSet = {}
    removed: FieldSet = {}
    for key, value in new.items():
        before = old.get(key, _SELF) if key in old else None
        if key not in old:
            changed[f"f:{key}"] = owned(shape.child(key), value, added=True)
            continue
        if before is value:
            continue
        touched, gone = compare(shape.child(key), before, value)
        if touched is not None:
            changed[f"f:{key}"] = touched
        if gone is not None:
            removed[f"f:{key}"] = gone
    for key, value in old.items():
        if key not in new:
            removed[f"f:{key}"] = owned(shape.child(key), value, added=True)
    return changed or None, removed or None


def _compare_sets(old: list[Any], new: list[Any]) -> tuple[FieldSet | None, FieldSet | None]:
    before = {"v:" + key_text(item) for item in old}
    after = {"v:" + key_text(item) for item in new}
    changed = dict.fromkeys(after - before, _SELF)
    removed = dict.fromkeys(before - after, _SELF)
    return changed or None, removed or None


def _compare_keyed(
    shape: Shape, old: list[Any], new: list[Any]
) -> tuple[FieldSet | None, FieldSet | None]:
    before = {element_key(shape, item): item for item in old}
    after = {element_key(shape, item): item for item in new}
    changed: FieldSet = {}
    removed: FieldSet = {}
    for key, item in after.items():
        if key not in before:
            node = owned(shape.element, item, added=True)
            changed[key] = {**node, ".": _SELF} if node else _SELF
            continue
        touched, gone = compare(shape.element, before[key], item)
        if touched is not None:
            changed[key] = touched
        if gone is not None:
            removed[key] = gone
    for key, item in before.items():
        if key not in after:
            node = owned(shape.element, item, added=True)
            removed[key] = {**node, ".": _SELF} if node else _SELF
    return changed or None, removed or None


def union(left: FieldSet | None, right: FieldSet | None) -> FieldSet | None:
    if left is None or left is right:
        return right
    if right is None:
        return left
    below: FieldSet = {key: node for key, node in left.items() if key != "."}
    for key, node in right.items():
        if key != ".":
            below[key] = union(below.get(key), node)
    return _build(is_member(left) or is_member(right), below)


def difference(left: FieldSet | None, right: FieldSet | None) -> FieldSet | None:
    """Members of ``left`` that are not members of ``right``."""
    if left is None or right is None:
        return left
    below: FieldSet = {}
    for key, node in left.items():
        if key == ".":
            continue
        rest = difference(node, right[key]) if key in right else node
        if rest is not None:
            below[key] = rest
    return _build(is_member(left) and not is_member(right), below)


def intersection(left: FieldSet | None, right: FieldSet | None) -> FieldSet | None:
    if left is None or right is None:
        return None
    below: FieldSet = {}
    for key, node in left.items():
        if key != "." and key in right:
            shared = intersection(node, right[key])
            if shared is not None:
                below[key] = shared
    return _build(is_member(left) and is_member(right), below)


def paths(node: FieldSet | None, prefix: str = "") -> Iterator[str]:
    """The members as error messages print them: ``.status.conditions[type="Ready"].status``."""
    if node is None:
        return
    if is_member(node) and prefix:
        yield prefix
    for key in sorted(key for key in node if key != "."):
        kind, text = key[0], key[2:]
        if kind == "f":
            step = f".{text}"
        elif kind == "k":
            keys = orjson.loads(text)
            step = "[" + ",".join(f"{name}={key_text(keys[name])}" for name in sorted(keys)) + "]"
        elif kind == "v":
            step = f"[={text}]"
        else:
            step = f"[{text}]"
        yield from paths(node[key], prefix + step)


def remove(shape: Shape, value: Any, gone: FieldSet, kept: FieldSet | None, missing: Any) -> Any:
    """``value`` without the members ``gone``; what ``kept`` has members below stays.

    Returns ``missing`` when nothing is left.
    """
    if is_member(gone) and kept is None:
        return missing
    if type(value) is dict and is_granular_map(shape, value):
        return _remove_fields(shape, value, gone, kept, missing)
    if type(value) is list and shape.code == "list" and shape.list_kind != "atomic":
        left = []
        for item in value:
            key = "v:" + key_text(item) if shape.list_kind == "set" else element_key(shape, item)
            if key in gone:
                below = None if kept is None else kept.get(key)
                rest = remove(shape.element, item, gone[key], below, missing)
                if rest is not missing:
                    left.append(rest)
            else:
                left.append(item)
        return left or missing
    return value


def _remove_fields(
    shape: Shape, value: Json, gone: FieldSet, kept: FieldSet | None, missing: Any
) -> Any:
    left = {}
    for key, item in value.items():
        name = f"f:{key}"
        if name in gone:
            child = shape.child(key) if shape.fields or shape.items else UNTYPED
            rest = remove(
                child, item, gone[name], None if kept is None else kept.get(name), missing
            )
            if rest is not missing:
                left[key] = rest
        else:
            left[key] = item
    return left if left or not value else missing
