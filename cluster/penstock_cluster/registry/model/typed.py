"""Decoding the built-in kinds: what a Go server makes of JSON that claims to be a Pod.

:func:`decode` checks types, drops unknown fields (naming them), nulls and empty values that Go
would not write out, brings quantities, times and base64 into their written form, and adds what Go
always writes. Its result shares nothing with its input.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Any

from penstock_cluster.registry.model import quantity
from penstock_cluster.registry.model.shape import Shape

Json = dict[str, Any]

_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICROS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_INT64 = 2**63
_GO_TIME = "2006-01-02T15:04:05Z07:00"
_GO_MICRO_TIME = "2006-01-02T15:04:05.000000Z07:00"
_NO_FRACTION = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<rest>Z|[+-]\d\d:\d\d)")


class DecodeError(ValueError):
    """The data do not have the type; the message is that of Go's decoder."""


class _Decoder:
    __slots__ = ("unknown",)

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def object(self, shape: Shape, value: Any, path: str) -> Json:
        decoded: Json = {}
        fields = shape.fields
        for key, item in value.items():
            child = fields.get(key)
            if child is None:
                self.unknown.append(f"{path}.{key}" if path else key)
                continue
            if item is None:
                continue
            code = child.code
            if code == "string":
                if type(item) is not str:
                    raise self._mismatch(shape, child, item, f"{path}.{key}" if path else key)
                if item or not child.omits_zero:
                    decoded[key] = item
                continue
            result = self.value(child, item, f"{path}.{key}" if path else key, shape)
            if result is None or (child.omits_zero and not result):
                continue
            if code in ("list", "map") and not result and key not in shape.always:
                continue
            decoded[key] = result
        for key, empty in shape.always.items():
            if key not in decoded:
                child = fields[key]
                decoded[key] = (
                    self.object(child, {}, "")
                    if empty is not None and child.code == "object"
                    else empty
                )
        return decoded

    def value(self, shape: Shape, value: Any, path: str, owner: Shape) -> Any:
        code = shape.code
        if code == "object":
            if type(value) is not dict:
                raise self._mismatch(owner, shape, value, path)
            return self.object(shape, value, path)
        if code == "string":
            if type(value) is not str:
                raise self._mismatch(owner, shape, value, path)
            return value
        if code == "list":
            if type(value) is not list:
                raise self._mismatch(owner, shape, value, path)
            return self._list(shape, value, path, owner)
        if code == "map":
            if type(value) is not dict:
                raise self._mismatch(owner, shape, value, path)
            return self._map(shape, value, path, owner)
        if code == "integer":
            if type(value) is int:
                return value
            if type(value) is float and value.is_integer() and abs(value) < _INT64:
                return int(value)
            raise self._mismatch(owner, shape, value, path)
        if code == "boolean":
            if type(value) is not bool:
                raise self._mismatch(owner, shape, value, path)
            return value
        if code == "any":
            return _copy(value)
        if code == "quantity":
            return _quantity(value)
        if code == "int-or-string":
            if type(value) is int or type(value) is str:
                return value
            raise self._mismatch(owner, shape, value, path)
        if code == "time":
            return self._time(shape, value, path, owner)
        if code == "micro-time":
            return self._micro_time(shape, value, path, owner)
        if code == "bytes":
            return self._bytes(shape, value, path, owner)
        if type(value) is int or type(value) is float:
            return value
        raise self._mismatch(owner, shape, value, path)

    def _list(self, shape: Shape, value: list[Any], path: str, owner: Shape) -> list[Any]:
        element = shape.element
        if element.code == "object":
            decoded = []
            for index, item in enumerate(value):
                if item is not None and type(item) is not dict:
                    raise self._mismatch(owner, element, item, path)
                decoded.append(self.object(element, item or {}, f"{path}[{index}]"))
            return decoded
        if element.code == "string":
            for item in value:
                if type(item) is not str:
                    raise self._mismatch(owner, element, item, path)
            return list(value)
        return [
            self.value(element, item, f"{path}[{index}]", owner) for index, item in enumerate(value)
        ]

    def _map(self, shape: Shape, value: Json, path: str, owner: Shape) -> Json:
        element = shape.element
        if element.code == "string":
            decoded = {}
            for key, item in value.items():
                if item is not None and type(item) is not str:
                    raise self._mismatch(owner, element, item, path)
                decoded[key] = item or ""
            return decoded
        return {
            key: self.value(element, item, f"{path}.{key}", owner)
            for key, item in value.items()
            if item is not None
        }

    def _time(self, shape: Shape, value: Any, path: str, owner: Shape) -> str:
        if type(value) is not str:
            raise self._mismatch(owner, shape, value, path)
        if len(value) == 20 and _SECONDS.fullmatch(value):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise DecodeError(
                f'parsing time "{value}" as "{_GO_TIME}": cannot parse "{value}" as "2006"'
            )
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _micro_time(self, shape: Shape, value: Any, path: str, owner: Shape) -> str:
        if type(value) is not str:
            raise self._mismatch(owner, shape, value, path)
        if _MICROS.fullmatch(value):
            return value
        whole = _NO_FRACTION.fullmatch(value)
        if whole:
            raise DecodeError(
                f'parsing time "{value}" as "{_GO_MICRO_TIME}": '
                f'cannot parse "{whole["rest"]}" as ".000000"'
            )
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise DecodeError(
                f'parsing time "{value}" as "{_GO_MICRO_TIME}": cannot parse "{value}" as "2006"'
            )
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _bytes(self, shape: Shape, value: Any, path: str, owner: Shape) -> str:
        if type(value) is not str:
            raise self._mismatch(owner, shape, value, path)
        text = value.replace("\n", "").replace("\r", "")
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            legal = re.match(r"[A-Za-z0-9+/]*", text)
            at = len(legal.group()) if legal else 0
            raise DecodeError(f"illegal base64 data at input byte {at}") from None
        return text

    def _mismatch(self, owner: Shape, wanted: Shape, value: Any, path: str) -> DecodeError:
        shown = re.sub(r"\[\d+\]", "", path)
        if owner.name and "." in shown and shown.split(".")[0] == "metadata":
            place = f"ObjectMeta.{shown}"
        else:
            place = f"{owner.name}.{shown}" if owner.name else shown
        return DecodeError(
            f"json: cannot unmarshal {json_name(value)} into Go struct field "
            f"{place} of type {_go_name(wanted)}"
        )


def json_name(value: Any) -> str:
    if type(value) is bool:
        return "bool"
    if type(value) is str:
        return "string"
    if type(value) is list:
        return "array"
    if type(value) is dict:
        return "object"
    return f"number {value}" if type(value) is float else "number"


def _go_name(shape: Shape) -> str:
    if shape.go_type:
        return shape.go_type
    if shape.code == "object":
        return f"v1.{shape.name}"
    if shape.code == "list":
        return f"[]{_go_name(shape.element)}"
    if shape.code == "map":
        return f"map[string]{_go_name(shape.element)}"
    return shape.code


def _quantity(value: Any) -> str:
    if type(value) is str:
        text = value
    elif type(value) in (int, float):
        text = repr(value)
    else:
        raise DecodeError(str(quantity.QuantityError()))
    try:
        return quantity.canonical(text)
    except quantity.QuantityError as error:
        raise DecodeError(str(error)) from None


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy(item) for item in value]
    return value


def decode(shape: Shape, document: Json) -> tuple[Json, list[str]]:
    """The document as the server keeps it, and the paths of fields the type does not have.

    Raises :class:`DecodeError`.
    """
    decoder = _Decoder()
    decoded = decoder.object(shape, document, "")
    return decoded, decoder.unknown
