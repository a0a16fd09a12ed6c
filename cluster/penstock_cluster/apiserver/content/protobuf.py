"""Kubernetes' protobuf encoding, as far as clients insist on it.

kubectl sends the objects of ``kubectl create configmap``, ``auth can-i`` and its like in this
encoding and in no other; replies it takes as JSON. So requests are decoded here, and of replies
only the ``Status`` of a client that accepts nothing else is encoded.

``data/protobuf-fields.json`` gives the field numbers by type (``+Type``: a message whose fields
stand in the object itself). A field that is not in it is refused rather than lost.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import Any

from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.model.shape import Shape

MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@lru_cache(maxsize=1)
def _numbers() -> dict[str, dict[int, str]]:
    text = (
        resources.files("penstock_cluster.apiserver")
        .joinpath("data/protobuf-fields.json")
        .read_text()
    )
    return {
        name: {number: field for field, number in fields.items()}
        for name, fields in json.loads(text).items()
    }


def _malformed(why: str) -> errors.ApiError:
    return errors.bad_request(f"the protobuf body cannot be read: {why}")


def decode_object(data: bytes, shape: Shape, kind: str) -> Json:
    """The object in a request's body; :class:`ApiError` 400 or 415."""
    if not data.startswith(MAGIC):
        raise _malformed("it does not begin with k8s\\0")
    api_version = given_kind = ""
    raw = b""
    for number, _, value in _fields(data[len(MAGIC) :]):
        if number == 1:
            for inner, _, text in _fields(value):
                if inner == 1:
                    api_version = text.decode()
                elif inner == 2:
                    given_kind = text.decode()
        elif number == 2:
            raw = value
    if shape.name not in _numbers():
        raise errors.unsupported_media_type(("application/json", "application/yaml"))
    document = _message(shape, shape.name, raw)
    return {"apiVersion": api_version, "kind": given_kind or kind, **document}


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and raw value of each field of a message."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire == _BYTES:
            size, at = _varint(data, at)
            value = data[at : at + size]
            if len(value) != size:
                raise _malformed("it is cut off")
            at += size
        elif wire == _FIXED64:
            value, at = data[at : at + 8], at + 8
        elif wire == _FIXED32:
            value, at = data[at : at + 4], at + 4
        else:
            raise _malformed(f"wire type {wire}")
        yield number, wire, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise _malformed("a number is cut off")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result, at
        shift += 7


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _message(shape: Shape, type_name: str, data: bytes) -> Json:
    names = _numbers().get(type_name)
    if names is None:
        raise _malformed(f"the type {type_name} is not known here; send JSON")
    document: Json = {}
    for number, _, value in _fields(data):
        name = names.get(number)
        if name is None:
            raise _malformed(f"field {number} of {type_name} is not known here; send JSON")
        if name.startswith("+"):
            document.update(_message(shape, name[1:], value))
            continue
        child = shape.fields.get(name)
        if child is None:
            continue
        if child.code == "list":
            document.setdefault(name, []).append(_value(child.element, value))
        elif child.code == "map":
            key, item = _entry(child, value)
            document.setdefault(name, {})[key] = item
        else:
            document[name] = _value(child, value)
    return document


def _entry(shape: Shape, data: bytes) -> tuple[str, Any]:
    key, raw = "", b""
    for number, _, value in _fields(data):
        if number == 1:
            key = value.decode()
        else:
            raw = value
    if shape.element.code == "list":
        # A list of strings as a map's value travels as a message of its own.
        return key, [item.decode() for _, _, item in _fields(raw)]
    return key, _value(shape.element, raw)


def _value(shape: Shape, raw: Any) -> Any:
    code = shape.code
    if code == "string":
        return raw.decode()
    if code == "object":
        return _message(shape, shape.name, raw)
    if code == "integer":
        return _signed(raw)
    if code == "boolean":
        return bool(raw)
    if code == "bytes":
        return base64.b64encode(raw).decode()
    if code == "quantity":
        return next((text.decode() for number, _, text in _fields(raw) if number == 1), "0")
    if code == "int-or-string":
        found = {number: value for number, _, value in _fields(raw)}
        return found.get(3, b"").decode() if found.get(1) else _signed(found.get(2, 0))
    if code in ("time", "micro-time"):
        found = {number: value for number, _, value in _fields(raw)}
        if not found:
            return None
        moment = datetime.fromtimestamp(_signed(found.get(1, 0)), UTC)
        if code == "time":
            return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        return moment.strftime(f"%Y-%m-%dT%H:%M:%S.{found.get(2, 0) // 1000:06d}Z")
    if code == "number":
        return struct.unpack("<d", raw)[0]
    inner = next((value for number, _, value in _fields(raw) if number == 1), b"")
    return json.loads(inner) if inner else None


# Encoding a Status


def _put_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _put(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _put_varint(number << 3) + _put_varint(value)
    return _put_varint(number << 3 | _BYTES) + _put_varint(len(value)) + value


def _text(number: int, value: Any) -> bytes:
    return _put(number, str(value or "").encode())


def encode_status(status: Json) -> bytes:
    """A ``Status`` in its envelope."""
    details = status.get("details")
    body = _put(1, b"") + _text(2, status.get("status")) + _text(3, status.get("message"))
    body += _text(4, status.get("reason"))
    if details is not None:
        inner = _text(1, details.get("name")) + _text(2, details.get("group"))
        inner += _text(3, details.get("kind"))
        for cause in details.get("causes") or ():
            inner += _put(
                4,
                _text(1, cause.get("reason"))
                + _text(2, cause.get("message"))
                + _text(3, cause.get("field")),
            )
        inner += _put(5, details.get("retryAfterSeconds", 0)) + _text(6, details.get("uid"))
        body += _put(5, inner)
    body += _put(6, status.get("code", 0))
    kind = _text(1, "v1") + _text(2, "Status")
    return MAGIC + _put(1, kind) + _put(2, body) + _text(3, "") + _text(4, "")
