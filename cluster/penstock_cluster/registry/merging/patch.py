"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902), with the leniencies of the real server.

A JSON patch is small and what comes of it need not be: thirty copies of a document into itself are
a billion of it. What all copies of a patch add is bounded, as in the real server, and so is how
deep anything comes to lie.
"""

from __future__ import annotations

from typing import Any, Final

from penstock_cluster.registry.model.documents import DEPTH_LIMIT, MISSING, thaw
from penstock_cluster.registry.model.errors import ApiError, Json, bad_request, unprocessable

_OPERATIONS_LIMIT: Final = 10_000
_COPIES_LIMIT_BYTES: Final = 3 * 2**20
"""The most that all copies of one patch may add, as JSON."""


def merge(target: Any, patch: Any) -> Any:
    """``target`` with a merge patch; maps along the way are copied, the rest is shared."""
    if type(patch) is not dict:
        return patch
    merged = dict(target) if type(target) is dict else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif type(value) is dict:
            merged[key] = merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def json_patch(target: Json, operations: list[Any]) -> Json:
    """``target`` after all operations; :class:`ApiError` 422 when one cannot be carried out."""
    if len(operations) > _OPERATIONS_LIMIT:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{_OPERATIONS_LIMIT}, got {len(operations)}",
        )
    document = thaw(target)
    copied_bytes = 0
    for operation in operations:
        if type(operation) is not dict:
            raise bad_request(
                "error decoding patch: json: cannot unmarshal into Go value of type jsonPatchOp"
            )
        if operation.get("op") == "copy":
            copied = _find(document, _pointer(operation.get("from")))
            copied_bytes += _size(copied)
            if copied_bytes > _COPIES_LIMIT_BYTES:
                raise _too_much_copied(copied_bytes)
            _check_depth(copied)
        document = _carry_out(document, operation)
        if type(document) is not dict:
            raise unprocessable()
    _check_depth(document)
    return document


def _carry_out(document: Any, operation: Json) -> Any:
    kind = operation.get("op")
    path = _pointer(operation.get("path"))
    if kind == "add":
        return _add(document, path, _value(operation))
    if kind == "replace":
        return _replace(document, path, _value(operation))
    if kind == "remove":
        _remove(document, path)
        return document
    if kind == "test":
        if not _same(_find(document, path), operation.get("value")):
            raise unprocessable()
        return document
    if kind in ("copy", "move"):
        source = _pointer(operation.get("from"))
        value = _find(document, source)
        if value is MISSING:
            raise unprocessable()
        if kind == "copy":
            return _add(document, path, thaw(value))
        _remove(document, source)
        return _add(document, path, value)
    raise unprocessable()


def _too_much_copied(size: int) -> ApiError:
    return ApiError(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: Unable to complete the copy, the accumulated size increase of "
        f"copy is {size}, exceeding the limit {_COPIES_LIMIT_BYTES}",
    )


def _size(value: Any) -> int:
    """About the bytes of a value as JSON; ``MISSING`` has none."""
    total, left = 0, [value]
    while left:
        item = left.pop()
        if type(item) is dict:
            total += 2 + sum(len(key) + 4 for key in item)
            left.extend(item.values())
        elif type(item) is list:
            total += 2 + len(item)
            left.extend(item)
        elif type(item) is str:
            total += 2 + (len(item) if item.isascii() else len(item.encode(errors="replace")))
        elif item is not MISSING:
            total += 4
    return total


def _check_depth(value: Any) -> None:
    """422 when a value is nested too deeply to be copied and written."""
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for item in level
            if type(item) in (dict, list)
            for inner in (item.values() if type(item) is dict else item)
        ]
        if not level:
            return
    raise ApiError(422, "Invalid", f"the patch nests a value deeper than {DEPTH_LIMIT} levels", {})


def _value(operation: Json) -> Any:
    if "value" not in operation:
        raise unprocessable()
    return thaw(operation["value"])


def _pointer(text: Any) -> list[str]:
    if type(text) is not str or (text and not text.startswith("/")):
        raise unprocessable()
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _index(step: str, length: int) -> int:
    try:
        index = int(step)
    except ValueError:
        raise unprocessable() from None
    if index < 0:
        index += length
    if not 0 <= index < length:
        raise unprocessable()
    return index


def _parent(document: Any, path: list[str]) -> Any:
    for step in path[:-1]:
        document = _step(document, step)
        if document is MISSING:
            raise unprocessable()
    return document


def _step(document: Any, step: str) -> Any:
    if type(document) is dict:
        return document.get(step, MISSING)
    if type(document) is list:
        return document[_index(step, len(document))]
    return MISSING


def _find(document: Any, path: list[str]) -> Any:
    for step in path:
        document = _step(document, step)
        if document is MISSING:
            return MISSING
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _parent(document, path)
    last = path[-1]
    if type(parent) is dict:
        parent[last] = value
    elif type(parent) is list:
        if last == "-":
            parent.append(value)
        else:
            parent.insert(_index(last, len(parent) + 1), value)
    else:
        raise unprocessable()
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    """A missing last step is created: the real server's library is that lenient."""
    if not path:
        return value
    parent = _parent(document, path)
    last = path[-1]
    if type(parent) is dict:
        parent[last] = value
    elif type(parent) is list:
        parent[_index(last, len(parent))] = value
    else:
        raise unprocessable()
    return document


def _remove(document: Any, path: list[str]) -> None:
    if not path:
        raise unprocessable()
    parent = _parent(document, path)
    last = path[-1]
    if type(parent) is dict and last in parent:
        del parent[last]
    elif type(parent) is list:
        del parent[_index(last, len(parent))]
    else:
        raise unprocessable()


def _same(found: Any, wanted: Any) -> bool:
    if found is MISSING:
        return wanted is None
    if type(found) is bool or type(wanted) is bool:
        return found is wanted
    return bool(found == wanted)
