"""Compares an answer with the recorded one, value for value."""

from __future__ import annotations

import re
from typing import Any

from cluster.tests.golden.placeholders import Bindings

#: Where the real server prints a diff of its internal structures, to the end of the message.
_DIFF = re.compile(r"\n(?:@@|  core\.PodSpec\{)[\s\S]*?(\]?)\Z")
#: Messages that hold names internal to the real server: compared by reason only.
INTERNAL = re.compile(r"handlers\.jsonPatchOp|/registry/")
_ABSENT = object()


def differences(recorded: Any, got: Any, bindings: Bindings, path: str = "body") -> list[str]:
    """Where ``got`` is not what was recorded, as ``path: recorded != got``."""
    if isinstance(recorded, dict) and isinstance(got, dict):
        return _in_objects(recorded, got, bindings, path)
    if isinstance(recorded, list) and isinstance(got, list):
        return _in_lists(recorded, got, bindings, path)
    if isinstance(recorded, str) and isinstance(got, str):
        if bindings.match(_without_diff(recorded), _without_diff(got)):
            return []
        if path.endswith("essage") and INTERNAL.search(recorded):
            return []
        if path == "body.message" and _same_faults(recorded, got, bindings):
            return []
    elif recorded == got and type(recorded) is type(got):
        return []
    return [f"{path}: {_short(recorded)} != {_short(got)}"]


def _in_objects(
    recorded: dict[str, Any], got: dict[str, Any], bindings: Bindings, path: str
) -> list[str]:
    found: list[str] = []
    rest = dict(got)
    for key, value in recorded.items():
        name = key if key in rest else next((k for k in rest if bindings.match(key, k)), None)
        if name is None:
            found.append(f"{path}.{key}: {_short(value)} != (absent)")
            continue
        found += differences(value, rest.pop(name), bindings, f"{path}.{key}")
    found += [f"{path}.{key}: (absent) != {_short(value)}" for key, value in rest.items()]
    return found


def _in_lists(recorded: list[Any], got: list[Any], bindings: Bindings, path: str) -> list[str]:
    if path.endswith((".causes", ".managedFields")):
        recorded, got = sorted(recorded, key=_cause), sorted(got, key=_cause)
    found: list[str] = []
    for index, value in enumerate(recorded):
        place = f"{path}[{index}]"
        if index < len(got):
            found += differences(value, got[index], bindings, place)
        else:
            found.append(f"{place}: {_short(value)} != (absent)")
    for index in range(len(recorded), len(got)):
        found.append(f"{path}[{index}]: (absent) != {_short(got[index])}")
    return found


def _without_diff(message: str) -> str:
    return _DIFF.sub(r"\n\1", message)


def _cause(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    parts = ("field", "reason", "manager", "operation", "subresource", "message")
    return " ".join(str(item.get(part, "")) for part in parts)


def _same_faults(recorded: str, got: str, bindings: Bindings) -> bool:
    """Whether two messages list the same faults in another order."""
    head, _, tail = recorded.partition(": [")
    got_head, _, got_tail = got.partition(": [")
    if not tail.endswith("]") or not got_tail.endswith("]") or not bindings.match(head, got_head):
        return False
    wanted, found = (sorted(text[:-1].split(", ")) for text in (tail, got_tail))
    if len(wanted) != len(found):
        return False
    return all(
        bindings.match(a, b) or INTERNAL.search(a) is not None
        for a, b in zip(wanted, found, strict=True)
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


def without_managed_fields(value: Any, *, keep: bool = False) -> Any:
    """A copy without ``managedFields``, or (``keep``) without the time of their entries."""
    if isinstance(value, list):
        return [without_managed_fields(item, keep=keep) for item in value]
    if not isinstance(value, dict):
        return value
    copy = {}
    for key, item in value.items():
        if key == "managedFields" and isinstance(item, list):
            if keep:
                copy[key] = [{k: v for k, v in entry.items() if k != "time"} for entry in item]
            continue
        copy[key] = without_managed_fields(item, keep=keep)
    return copy
