"""Samples in the middle of their way, as plain data that can be sent, and back bit by bit.

Arrays travel with their strides, since sums may round differently for another layout; pictures of
Pillow as their bytes. Everything else is left as it is: what cannot be sent is refused where the
batch is packed (`penstock.data.transport.batch_codec`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

_MARK: Final = "penstock: laid out"
MODES: Final = frozenset({"1", "L", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F"})
"""Of pictures that are their bytes and nothing else, as a palette would be."""


def to_plain(value: Any) -> Any:
    """A sample, or a part of one, as plain data as far as that is known here."""
    kind = type(value)
    if kind is dict:
        return {key: to_plain(one) for key, one in value.items()}
    if kind is list:
        return [to_plain(one) for one in value]
    if isinstance(value, tuple):
        return _rebuilt(value, [to_plain(one) for one in value])
    if kind is np.ndarray:
        return value if _is_dense(value.shape, value.strides, value.itemsize) else _array(value)
    torch = sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor and value.layout is torch.strided:
        dense = _is_dense(value.shape, value.stride(), 1)
        return value if dense else {_MARK: "tensor", "strides": list(value.stride()), "is": value}
    image = sys.modules.get("PIL.Image")
    if image is not None and kind is image.Image and value.mode in MODES:
        pixels = np.frombuffer(value.tobytes(), np.uint8)
        return {_MARK: "picture", "mode": value.mode, "size": list(value.size), "is": pixels}
    return value


def from_plain(value: Any) -> Any:
    """What `to_plain` was given."""
    kind = type(value)
    if kind is dict:
        if _MARK in value:
            return _made[value[_MARK]](value)
        return {key: from_plain(one) for key, one in value.items()}
    if kind is list:
        return [from_plain(one) for one in value]
    if isinstance(value, tuple):
        return _rebuilt(value, [from_plain(one) for one in value])
    return value


def _rebuilt(value: Any, parts: list[Any]) -> Any:
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def _is_dense(shape: Sequence[int], strides: Sequence[int], step: int) -> bool:
    """Whether it lies in memory without gaps, in some order of its dimensions."""
    for stride, size in sorted((a, b) for a, b in zip(strides, shape, strict=True) if b != 1):
        if stride != step:
            return False
        step *= size
    return True


def _array(value: Any) -> dict[str, Any]:
    return {_MARK: "array", "strides": list(value.strides), "is": np.ascontiguousarray(value)}


def _make_array(plain: dict[str, Any]) -> Any:
    dense, strides = plain["is"], plain["strides"]
    reach = [(size - 1) * stride for size, stride in zip(dense.shape, strides, strict=True)]
    begin = -sum(one for one in reach if one < 0)
    memory = np.empty(begin + sum(one for one in reach if one > 0) + dense.itemsize, np.uint8)
    laid: Any = np.ndarray(dense.shape, dense.dtype, memory, begin, strides)
    laid[...] = dense
    return laid


def _make_tensor(plain: dict[str, Any]) -> Any:
    torch, dense, strides = sys.modules["torch"], plain["is"], plain["strides"]
    reach = sum((size - 1) * stride for size, stride in zip(dense.shape, strides, strict=True))
    laid = torch.empty(reach + 1, dtype=dense.dtype).as_strided(dense.shape, strides)
    return laid.copy_(dense)


def _make_picture(plain: dict[str, Any]) -> Any:
    from PIL import Image

    return Image.frombytes(plain["mode"], tuple(plain["size"]), plain["is"].tobytes())


_made: Final = {"array": _make_array, "tensor": _make_tensor, "picture": _make_picture}
