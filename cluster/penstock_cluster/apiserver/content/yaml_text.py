"""YAML as Kubernetes takes it: what JSON could say, within bounds. Pure.

A time is text, as kubectl has it; what JSON cannot hold is refused. Three thousand brackets must
not exhaust the stack, nor ten aliases of aliases the memory: the shape is looked at before anything
is built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import yaml

from penstock_cluster.registry.model.documents import DEPTH_LIMIT

NODE_LIMIT: Final = 1_000_000
"""So many nodes may a text have with its aliases written out."""
TOO_DEEP: Final = "exceeded max depth"
_INT64: Final = 2**63


# The base depends on the build of PyYAML.
class Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """A safe loader that leaves times as text, as JSON has them."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class _Open:
    """A list or a map whose end is not reached."""

    anchor: str | None
    before: int


def check(text: str | bytes) -> None:
    """Read the events only, which takes no recursion.

    Raises:
        ValueError: the text is nested too deeply or grows too large with its aliases.
        yaml.YAMLError: it is no YAML.
    """
    nodes = 0
    sizes: dict[str, int] = {}
    started: list[_Open] = []
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            ended = started.pop()
            if ended.anchor is not None:
                sizes[ended.anchor] = nodes - ended.before + 1
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        nodes += 1
        if isinstance(event, yaml.AliasEvent):
            if any(each.anchor == event.anchor for each in started):
                raise ValueError(f"*{event.anchor} stands within what it stands for")
            nodes += sizes.get(event.anchor or "", 1) - 1
        elif isinstance(event, yaml.CollectionStartEvent):
            started.append(_Open(event.anchor, nodes))
            if len(started) > DEPTH_LIMIT:
                raise ValueError(TOO_DEEP)
        if nodes > NODE_LIMIT:
            raise ValueError("document contains excessive aliasing")


def well_formed(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair, as Go's decoder has it."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def as_json(value: Any) -> Any:
    """What YAML was read as, as JSON can hold it; ``ValueError`` for what JSON cannot."""
    if type(value) is str:
        return well_formed(value)
    if type(value) is dict:
        return {_key(key): as_json(item) for key, item in value.items()}
    if type(value) is list:
        return [as_json(item) for item in value]
    if type(value) is int and not -_INT64 <= value < 2 * _INT64:
        return float(value)
    if type(value) is float and not math.isfinite(value):
        raise ValueError(f"json: unsupported value: {value}")
    if value is None or type(value) in (int, float, bool):
        return value
    raise ValueError(f"json: unsupported type: {type(value).__name__}")


def _key(key: Any) -> str:
    if type(key) is str:
        return well_formed(key)
    if type(key) is bool:
        return "true" if key else "false"
    if type(key) is int or type(key) is float:
        return str(key)
    raise ValueError(f"unsupported map key of type: {type(key).__name__}")
