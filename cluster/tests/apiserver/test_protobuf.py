"""Protobuf: the bodies that kubectl sends, and nothing lost in silence."""

from __future__ import annotations

import pytest

from penstock_cluster.apiserver.content import protobuf
from penstock_cluster.registry import ApiError
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.shape import CoreTypes

CONFIG_MAP = CoreTypes().shape("io.k8s.api.core.v1.ConfigMap")


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def _envelope(raw: bytes) -> bytes:
    kind = _field(1, b"v1") + _field(2, b"ConfigMap")
    return protobuf.MAGIC + _field(1, kind) + _field(2, raw)


def test_a_config_map_is_read() -> None:
    entry = _field(1, b"key") + _field(2, b"value")
    raw = _field(1, _field(1, b"name")) + _field(2, entry) + bytes([4 << 3, 1])
    assert protobuf.decode_object(_envelope(raw), CONFIG_MAP, "ConfigMap") == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "name"},
        "data": {"key": "value"},
        "immutable": True,
    }


def test_an_unknown_field_is_refused_rather_than_lost() -> None:
    with pytest.raises(ApiError, match="field 15 of ConfigMap is not known here"):
        protobuf.decode_object(_envelope(_field(15, b"x")), CONFIG_MAP, "ConfigMap")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        protobuf.MAGIC + b"\x0a\xff",
        _envelope(b"\x0a\x7f"),
        _envelope(b"\x0f"),
        protobuf.MAGIC + b"\x12\x02\xff\xff",
    ],
)
def test_what_is_no_protobuf_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError) as refusal:
        protobuf.decode_object(data, CONFIG_MAP, "ConfigMap")
    assert refusal.value.code == 400


def test_a_status_is_written_in_its_envelope() -> None:
    text = protobuf.encode_status(errors.unauthorized().status)
    assert text.startswith(protobuf.MAGIC)
    assert b"Unauthorized" in text
