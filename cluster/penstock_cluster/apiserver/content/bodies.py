"""Request bodies: JSON and YAML, with the refusals of the real server's decoder."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import orjson
import yaml

from penstock_cluster.apiserver.content import nesting, yaml_text
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import Json

#: The most a request may carry, as in the real server.
BODY_LIMIT_BYTES = 3 * 2**20
JSON_TYPE = "application/json"
YAML_TYPE = "application/yaml"
PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"
_PREVIEW = 30
_TYPE_META = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)


def media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def parse_json(text: bytes) -> Any:
    """JSON data; ``ValueError`` with Go's message."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            document = json.loads(text.decode("utf-8", "replace"), parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            raise ValueError(go_message(error)) from None
        except RecursionError:
            raise ValueError("exceeded max depth") from None
        document = yaml_text.as_json(document)
    nesting.check_depth(text, document)
    return document


def _no_constant(text: str) -> None:
    """NaN and the infinities are no JSON."""
    raise ValueError(f"invalid character {text.lstrip('-')[0]!r} looking for beginning of value")


def go_message(error: json.JSONDecodeError) -> str:
    """The message of Go's decoder for a fault that Python's found."""
    text, at = error.doc, error.pos
    if error.msg.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if at >= len(text):
        return "unexpected end of JSON input"
    if error.msg.startswith("Extra data"):
        return f"invalid character {text[at]!r} after top-level value"
    if "property name" in error.msg:
        return f"invalid character {text[at]!r} looking for beginning of object key string"
    if "':' delimiter" in error.msg:
        return f"invalid character {text[at]!r} after object key"
    if "',' delimiter" in error.msg:
        return f"invalid character {text[at]!r} after object key:value pair"
    return f"invalid character {text[at]!r} looking for beginning of value"


def decode_object(text: bytes, content_type: str, kind: str, *, needs_kind: bool) -> Json:
    """The object of a POST or PUT of ``kind``; :class:`ApiError` 400 or 415."""
    form = media_type(content_type) or JSON_TYPE
    if form == YAML_TYPE:
        return _yaml_object(text, kind)
    if form != JSON_TYPE:
        raise errors.unsupported_media_type((JSON_TYPE, YAML_TYPE, PROTOBUF_TYPE))
    try:
        document = parse_json(text)
    except ValueError as error:
        raise _unrecognized(
            kind, f"couldn't get version/kind; json parse error: {error}", text
        ) from None
    if type(document) is not dict:
        what = {list: "array", str: "string", bool: "bool"}.get(type(document), "number")
        raise _unrecognized(
            kind,
            "couldn't get version/kind; json parse error: json: cannot unmarshal "
            f"{what} into Go value of type {_TYPE_META}",
            text,
        )
    if needs_kind and not document.get("kind"):
        shown = text.decode("utf-8", "replace")
        raise _unrecognized(kind, f"Object 'Kind' is missing in '{shown}'", text)
    for field in ("apiVersion", "kind"):
        value = document.get(field)
        if value is not None and type(value) is not str:
            raise _unrecognized(
                kind,
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into "
                f"Go struct field .{field} of type string",
                text,
            )
    return document


def _unrecognized(kind: str, why: str, text: bytes) -> errors.ApiError:
    return errors.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {why} ({_preview(text)})"
    )


def _preview(text: bytes) -> str:
    if not text:
        return "<empty>"
    if not text.lstrip().startswith(b"{"):
        return text[:_PREVIEW].hex() + (" ..." if len(text) > _PREVIEW else "")
    shown = text[:_PREVIEW].decode("utf-8", "replace")
    return f"{shown} ..." if len(text) > _PREVIEW else shown


def _yaml_object(text: bytes, kind: str) -> Json:
    try:
        document = _load_yaml(text)
    except ValueError as error:
        raise _unrecognized(kind, f"error converting YAML to JSON: {error}", text) from None
    if type(document) is not dict:
        raise _unrecognized(kind, "couldn't get version/kind; the YAML is no map", text)
    return document


def parse_yaml(text: bytes) -> Any:
    """YAML (or JSON) of an applied configuration; :class:`ApiError` 400."""
    document: Any = None
    if text.lstrip()[:1] == b"{":
        with contextlib.suppress(orjson.JSONDecodeError):
            document = orjson.loads(text)
    try:
        if document is None:
            return _load_yaml(text)
        nesting.check_depth(text, document)
    except ValueError as error:
        raise errors.bad_request(
            f"error decoding YAML: error converting YAML to JSON: {error}"
        ) from None
    return document


def _load_yaml(text: bytes) -> Any:
    """YAML as JSON data; ``ValueError`` with the words of Go's library."""
    try:
        yaml_text.check(text)
        # The loader is a safe one.
        return yaml_text.as_json(yaml.load(text, Loader=yaml_text.Loader))  # noqa: S506
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ValueError(f"yaml: line {line + 1}: {problem}") from None
    except ValueError as error:
        raise ValueError(f"yaml: {error}") from None


class _Dumper(yaml.SafeDumper):
    """Writes text that could be read as something else in double quotes, as Go's library does."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _write_text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    if "\n" in value:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|")
    plain = (
        dumper.resolve(  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it untyped
            yaml.ScalarNode, value, (True, False)
        )
        == "tag:yaml.org,2002:str"
    )
    ambiguous = not plain or value == "" or re.fullmatch(r"[-+.\d_eE:]*\d[-+.\d_eE:ZT]*", value)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if ambiguous else None)


_Dumper.add_representer(str, _write_text)


def to_yaml(document: Any) -> bytes:
    return yaml.dump(document, Dumper=_Dumper, width=10**9, allow_unicode=True).encode()


def duplicate_fields(text: bytes, document: Json) -> list[str]:
    """Paths of keys that occur twice in one object of the JSON text.

    The common case is settled by counting: as many colons after quotes as keys, no duplicate.
    """
    if text.count(b'":') == _count_keys(document):
        return []
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> Any:
        merged: dict[str, Any] = {}
        twice = []
        for key, value in items:
            if key in merged:
                twice.append(key)
            merged[key] = value
        return _Marked(merged, twice) if twice else merged

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Marked):
            found.extend(f"{path}.{key}" if path else key for key in value.twice)
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}" if path else key)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")

    try:
        walk(json.loads(text, object_pairs_hook=pairs), "")
    except ValueError:
        return []
    return [yaml_text.well_formed(path) for path in found]


class _Marked(dict[str, Any]):
    """An object in whose text some keys came twice."""

    def __init__(self, items: dict[str, Any], twice: list[str]) -> None:
        super().__init__(items)
        self.twice = twice


def _count_keys(value: Any) -> int:
    if type(value) is dict:
        total = len(value)
        for item in value.values():
            if type(item) is dict or type(item) is list:
                total += _count_keys(item)
        return total
    total = 0
    for item in value:
        if type(item) is dict or type(item) is list:
            total += _count_keys(item)
    return total
