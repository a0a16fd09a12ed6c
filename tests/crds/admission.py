"""What an API server does with a custom resource: prune, fill in defaults, check schema and rules.

A small model of it, for the tests of the generated schemas: it says which fields are at fault, not
in which words. Whether the model is right is itself tested, by the recorded answers of a server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.crds import cel

DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
}
Schema = dict[str, Any]


@dataclass
class Verdict:
    """What came of a request.

    Attributes:
        document: the object as it would be stored.
        faults: (field, message) of everything that is wrong; none: accepted.
        unknown: fields that were pruned.
    """

    document: dict[str, Any]
    faults: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def fields(self) -> set[str]:
        return {name for name, _ in self.faults}

    @property
    def messages(self) -> list[str]:
        return [message for _, message in self.faults]


def create(schema: Schema, submitted: dict[str, Any]) -> Verdict:
    """POST: the status is dropped, as for every resource with a status subresource."""
    verdict = Verdict({})
    wanted = {key: value for key, value in submitted.items() if key != "status"}
    if "generateName" in wanted["metadata"]:
        generated = wanted["metadata"]["generateName"][:58] + "x" * 5
        wanted["metadata"] = {**wanted["metadata"], "name": generated}
    verdict.document = _admitted(schema, wanted, "", verdict.unknown)
    _check(schema, verdict, None)
    return verdict


def update(schema: Schema, stored: dict[str, Any], patch: dict[str, Any]) -> Verdict:
    """A merge patch of everything but the status."""
    verdict = Verdict({})
    wanted = merge_patch(stored, {key: item for key, item in patch.items() if key != "status"})
    verdict.document = _admitted(schema, wanted, "", verdict.unknown)
    _check(schema, verdict, stored)
    return verdict


def update_status(schema: Schema, stored: dict[str, Any], patch: dict[str, Any]) -> Verdict:
    """A merge patch of the status alone."""
    verdict = Verdict({})
    wanted = merge_patch(stored, {"status": patch["status"]})
    verdict.document = _admitted(schema, wanted, "", verdict.unknown)
    _check(schema, verdict, stored)
    return verdict


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def _admitted(schema: Schema, value: Any, path: str, unknown: list[str]) -> Any:
    """The value without unknown fields and nulls, and with the defaults that it lacks."""
    if isinstance(value, list) and "items" in schema:
        return [
            _admitted(schema["items"], item, f"{path}[{index}]", unknown)
            for index, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    if path == "metadata":
        return value
    kept = {}
    for key, item in value.items():
        inside = f"{path}.{key}" if path else key
        child = _child(schema, key)
        if child is None:
            if schema.get("x-kubernetes-preserve-unknown-fields"):
                kept[key] = item
            else:
                unknown.append(inside)
        elif item is not None:
            kept[key] = _admitted(child, item, inside, unknown)
    for key, child in schema.get("properties", {}).items():
        if key not in kept and "default" in child:
            kept[key] = _admitted(child, child["default"], "", [])
    return kept


def _child(schema: Schema, key: str) -> Schema | None:
    child: Schema | None = schema.get("properties", {}).get(key)
    return schema.get("additionalProperties") if child is None else child


def _check(schema: Schema, verdict: Verdict, stored: dict[str, Any] | None) -> None:
    blocking = []
    for path, message, blocks in schema_faults(schema, verdict.document, ""):
        verdict.faults.append((path, message))
        blocking.append(blocks)
    if not any(blocking):
        verdict.faults += _rule_faults(schema, verdict.document, stored, "")


Fault = tuple[str, str, bool]


def schema_faults(schema: Schema, value: Any, path: str) -> Iterator[Fault]:
    """Field, message, and whether the fault keeps the CEL rules from being evaluated."""
    yield from _type_faults(schema, value, path)
    if "enum" in schema and value not in schema["enum"]:
        yield path, f"supported values: {', '.join(schema['enum'])}", True
    if isinstance(value, str):
        yield from _text_faults(schema, value, path)
    elif isinstance(value, dict):
        yield from _map_faults(schema, value, path)
    elif isinstance(value, list):
        yield from _list_faults(schema, value, path)
    elif TYPES["integer"](value):
        if value < schema.get("minimum", value):
            yield path, f"at least {schema['minimum']}", False
        if value > schema.get("maximum", value):
            yield path, f"at most {schema['maximum']}", False


def _type_faults(schema: Schema, value: Any, path: str) -> Iterator[Fault]:
    choices = [choice["type"] for choice in schema.get("anyOf", [])] or [schema.get("type")]
    if not any(choice is None or TYPES[choice](value) for choice in choices):
        yield path, f"must be of type {choices}", True
    elif schema.get("format") == "date-time" and not DATE_TIME.fullmatch(value):
        yield path, "must be a time", True


def _text_faults(schema: Schema, value: str, path: str) -> Iterator[Fault]:
    if len(value) < schema.get("minLength", 0):
        yield path, f"at least {schema['minLength']} characters", False
    if len(value) > schema.get("maxLength", len(value)):
        yield path, f"at most {schema['maxLength']} characters", True
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield path, f"must match {schema['pattern']}", False


def _map_faults(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Fault]:
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}.{name}" if path else name, "required", True
    if len(value) < schema.get("minProperties", 0):
        yield path, f"at least {schema['minProperties']} properties", False
    if len(value) > schema.get("maxProperties", len(value)):
        yield path, f"at most {schema['maxProperties']} properties", True
    for key, item in value.items():
        if (child := _child(schema, key)) is not None:
            yield from schema_faults(child, item, f"{path}.{key}" if path else key)


def _list_faults(schema: Schema, value: list[Any], path: str) -> Iterator[Fault]:
    if len(value) < schema.get("minItems", 0):
        yield path, f"at least {schema['minItems']} items", False
    if len(value) > schema.get("maxItems", len(value)):
        yield path, f"at most {schema['maxItems']} items", True
    seen = []
    for index, item in enumerate(value):
        yield from schema_faults(schema.get("items", {}), item, f"{path}[{index}]")
        if schema.get("x-kubernetes-list-type") in ("map", "set"):
            identity = _identity(schema, item)
            if identity in seen:
                yield _with_brackets(f"{path}[{index}]"), "duplicate", False
            seen.append(identity)


def _identity(schema: Schema, item: Any) -> Any:
    keys = schema.get("x-kubernetes-list-map-keys")
    return [item.get(key) for key in keys] if keys and isinstance(item, dict) else item


def _with_brackets(path: str) -> str:
    """Duplicates are reported as CEL faults are, with keys of maps in brackets."""
    return re.sub(r"\.ranks\.(\w+)", r".ranks[\1]", path)


def _rule_faults(schema: Schema, value: Any, old: Any, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", []):
        is_transition = "oldSelf" in rule["rule"]
        if is_transition and old is None:
            continue
        variables = {"self": value, "oldSelf": old} if is_transition else {"self": value}
        if not cel.evaluate(rule["rule"], **variables):
            yield (path + rule.get("fieldPath", "")).lstrip("."), rule["message"]
    if isinstance(value, dict):
        for key, item in value.items():
            if (child := _child(schema, key)) is not None:
                declared = key in schema.get("properties", {})
                inside = (f"{path}.{key}" if path else key) if declared else f"{path}[{key}]"
                before = old.get(key) if isinstance(old, dict) else None
                yield from _rule_faults(child, item, before, inside)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _rule_faults(schema["items"], item, None, f"{path}[{index}]")
