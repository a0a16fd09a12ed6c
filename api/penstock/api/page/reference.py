"""The reference of the API as a page: the OpenAPI document in words, without JavaScript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_METHODS: Final = ("get", "put", "post", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Value:
    """One parameter or field."""

    name: str
    kind: str
    required: bool
    text: str
    link: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One call."""

    anchor: str
    method: str
    path: str
    text: str
    parameters: Sequence[Value]
    body: str
    answers: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Schema:
    """One object."""

    name: str
    text: str
    fields: Sequence[Value]
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class Reference:
    """Everything on the page."""

    title: str
    version: str
    text: str
    groups: Sequence[tuple[str, Sequence[Operation]]]
    schemas: Sequence[Schema]


def reference(document: Mapping[str, Any]) -> Reference:
    """The page for an OpenAPI document."""
    groups: dict[str, list[Operation]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                tag = (item[method].get("tags") or ["other"])[0]
                groups.setdefault(tag, []).append(_operation(path, method, item[method]))
    schemas = document["components"]["schemas"]
    return Reference(
        title=document["info"]["title"],
        version=document["info"]["version"],
        text=document["info"].get("description", "").strip(),
        groups=list(groups.items()),
        schemas=[_schema(name, schemas[name]) for name in sorted(schemas)],
    )


def _operation(path: str, method: str, item: Mapping[str, Any]) -> Operation:
    answers = []
    for status, answer in sorted(item["responses"].items()):
        answers.append((status, answer.get("description", ""), _name(_content(answer))))
    return Operation(
        anchor=f"{method}-{path.strip('/').replace('/', '-').replace('{', '').replace('}', '')}",
        method=method.upper(),
        path=path,
        text=item.get("description") or item.get("summary", ""),
        parameters=[
            Value(
                name=each["name"],
                kind=f"{_kind(each['schema'])}, {each['in']}",
                required=each.get("required", False),
                text=each.get("description") or each["schema"].get("description", ""),
                link="",
            )
            for each in item.get("parameters", ())
        ],
        body=_name(_content(item.get("requestBody") or {})),
        answers=answers,
    )


def _content(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of the first media type of a body or an answer."""
    for content in (holder.get("content") or {}).values():
        schema: Mapping[str, Any] = content.get("schema", {})
        return schema
    return {}


def _schema(name: str, schema: Mapping[str, Any]) -> Schema:
    required = set(schema.get("required", ()))
    return Schema(
        name=name,
        text=schema.get("description", ""),
        fields=[
            Value(
                name=field,
                kind=_kind(of),
                required=field in required,
                text=of.get("description", ""),
                link=_name(of),
            )
            for field, of in schema.get("properties", {}).items()
        ],
        words=[str(word) for word in schema.get("enum", ())],
    )


def _name(schema: Mapping[str, Any]) -> str:
    """The object that a schema refers to, directly or as an item or alternative; or nothing."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    inner = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())]
    found = (_name(each) for each in inner if isinstance(each, Mapping))
    return next((name for name in found if name), "")


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _name(schema)
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"map to {_kind(schema['additionalProperties'])}"
    return str(kind)
