"""YAML as Kubernetes takes it: what JSON could say, within bounds. Pure.

A manifest and a kubeconfig are YAML that a person wrote, and the embedded API server takes YAML
too. A time is text, as kubectl has it; what JSON cannot hold is refused. Three thousand brackets
must not exhaust the stack, nor ten aliases of aliases the memory: the shape is looked at before
anything is built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

DEPTH_LIMIT: Final = 200
"""No object of any kind comes near it (the real API server stops at 10,000)."""
NODE_LIMIT: Final = 1_000_000
"""So many nodes may a text have with its aliases written out."""
TOO_DEEP: Final = "exceeded max depth"
_INT64: Final = 2**63
_MERGE: Final = "<<"


# The base depends on the build of PyYAML; libyaml's takes a tenth of the time.
class Dumper(yaml.CSafeDumper if hasattr(yaml, "CSafeDumper") else yaml.SafeDumper):  # type: ignore[misc]
    """A safe dumper; any build writes the same."""


# The base depends on the build, as the dumper's does.
class Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """A safe loader that leaves times as text, as JSON has them."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents(text: str, *, unique_keys: bool = True) -> list[Any]:
    """The documents of a text that a person wrote.

    Raises:
        ValueError: It is none; the line is named.
    """
    try:
        check(text, unique_keys=unique_keys)
        return [as_json(each) for each in yaml.load_all(text, Loader=Loader)]
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from error


@dataclass
class _Open:
    """A list or a map whose end is not reached."""

    anchor: str | None
    before: int
    keys: set[str] | None = None
    """Of a map: those so far."""
    at_key: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.at_key = self.keys is not None


def check(text: str | bytes, *, unique_keys: bool = False) -> None:
    """Read the events only, which takes no recursion.

    Raises:
        ValueError: The text is nested too deeply or grows too large with its aliases.
        yaml.YAMLError: It is no YAML or, if asked, names a key of one map twice.
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
        if unique_keys and started:
            _see_key(started[-1], event)
        nodes += 1
        if isinstance(event, yaml.AliasEvent):
            if any(each.anchor == event.anchor for each in started):
                raise ValueError(f"*{event.anchor} stands within what it stands for")
            nodes += sizes.get(event.anchor or "", 1) - 1
        elif isinstance(event, yaml.CollectionStartEvent):
            keys = set[str]() if isinstance(event, yaml.MappingStartEvent) else None
            started.append(_Open(event.anchor, nodes, keys))
            if len(started) > DEPTH_LIMIT:
                raise ValueError(TOO_DEEP)
        if nodes > NODE_LIMIT:
            raise ValueError("document contains excessive aliasing")


def _see_key(of: _Open, event: yaml.NodeEvent) -> None:
    if of.keys is None:
        return
    if of.at_key and isinstance(event, yaml.ScalarEvent) and event.value != _MERGE:
        if event.value in of.keys:
            raise yaml.MarkedYAMLError(
                problem=f"{event.value!r} is there twice",
                # An event read from text has its mark.
                problem_mark=event.start_mark,  # type: ignore[arg-type]
            )
        of.keys.add(event.value)
    of.at_key = not of.at_key


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
