"""Bounds on the shape of what clients send, checked before anything walks it.

A body of 3 MB can hold a million nested lists, or YAML aliases that stand for more elements than
there is memory; either would take the server down. The real server refuses both as well (its
decoders stop at 10,000 levels; no object of any kind comes near the limit here).
"""

from __future__ import annotations

import math
from typing import Any

import yaml

DEPTH_LIMIT = 200
#: So many nodes may a YAML document have with its aliases written out.
NODE_LIMIT = 1_000_000
_TOO_DEEP = "exceeded max depth"
_INT64 = 2**63


def check_depth(text: bytes, document: Any) -> None:
    """``ValueError`` when the document of a JSON text is nested too deeply."""
    # So few brackets cannot nest too deeply; most bodies end here.
    if text.count(b"{") + text.count(b"[") <= DEPTH_LIMIT:
        return
    level = [document]
    for _ in range(DEPTH_LIMIT):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                below.extend(item.values())
            elif type(item) is list:
                below.extend(item)
        level = [item for item in below if type(item) is dict or type(item) is list]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def check_yaml(text: bytes, loader: Any) -> None:
    """``ValueError`` when a YAML text is nested too deeply or grows too large with its aliases.

    ``yaml.YAMLError`` when it is no YAML. Reads the events only, which takes no recursion.
    """
    depth = nodes = 0
    sizes: dict[str, int] = {}
    started: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            nodes += 1
            depth += 1
            started.append((event.anchor, nodes))
            if depth > DEPTH_LIMIT:
                raise ValueError(_TOO_DEEP)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            anchor, before = started.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before + 1
        elif isinstance(event, yaml.AliasEvent):
            nodes += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
        if nodes > NODE_LIMIT:
            raise ValueError("document contains excessive aliasing")


def as_json(value: Any) -> Any:
    """What YAML was read as, as JSON can hold it; ``ValueError`` for what JSON cannot."""
    if type(value) is dict:
        return {_key(key): as_json(item) for key, item in value.items()}
    if type(value) is list:
        return [as_json(item) for item in value]
    if type(value) is int and not -_INT64 <= value < 2 * _INT64:
        return float(value)
    if type(value) is float and not math.isfinite(value):
        raise ValueError(f"json: unsupported value: {value}")
    if value is None or type(value) in (str, int, float, bool):
        return value
    raise ValueError(f"json: unsupported type: {type(value).__name__}")


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    if type(key) is bool:
        return "true" if key else "false"
    if type(key) is int or type(key) is float:
        return str(key)
    raise ValueError(f"unsupported map key of type: {type(key).__name__}")
