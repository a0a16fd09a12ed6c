"""A function's result as bytes, and again as a result of the caller's own.

Results are laid out as batches are in frames (`penstock.data.transport.batch_codec`): arrays and
tensors in lists, tuples and dicts of plain values, and pictures of PIL. What is read back is always
a copy: a program that writes into it changes nobody else's.
"""

from __future__ import annotations

import struct
import sys
from functools import lru_cache
from typing import Any, Final

import numpy as np

from penstock.data.errors import FrameError, NotPortableError
from penstock.data.transport.batch_codec import ALIGNMENT, pack
from penstock.data.transport.layout import Layout

MODES: Final = frozenset({"RGB", "RGBA", "L"})
"""Of pictures that are their pixels and nothing else: no palette, no pixels of other types."""
_HEAD: Final = struct.Struct("<4sI")
_MAGIC: Final = b"PND1"


@lru_cache(maxsize=64)
def _layout(structure: bytes) -> Layout:
    """Results of a function are mostly laid out alike."""
    return Layout(structure)


def encoded(result: Any) -> bytes | None:
    """A result as bytes: the same for results that are the same; None: it cannot be kept."""
    image = sys.modules.get("PIL.Image")
    value: dict[str, Any] = {"value": result}
    if image is not None and isinstance(result, image.Image):
        if type(result) is not image.Image or result.mode not in MODES:
            return None
        value = {"mode": result.mode, "info": result.info, "value": np.asarray(result)}
    try:
        packed = pack(value)
    except NotPortableError:
        return None
    head = _HEAD.pack(_MAGIC, len(packed.structure)) + packed.structure
    head += bytes(-len(head) % ALIGNMENT)
    return b"".join([head, *packed.parts])


def decoded(content: bytearray) -> Any:
    """The result again; its arrays lie in ``content``, which is to be the caller's own.

    Raises:
        FrameError, NotPortableError: it is nothing that `encoded` gave.
    """
    try:
        magic, size = _HEAD.unpack_from(content)
    except struct.error as error:
        raise FrameError(f"a result of {len(content)} bytes") from error
    start = _HEAD.size + size
    if magic != _MAGIC or start > len(content):
        raise FrameError(f"a result that begins with {magic!r}")
    body = memoryview(content)[start + -start % ALIGNMENT :]
    value = _layout(bytes(content[_HEAD.size : start])).batch(body, len(body))
    if not isinstance(value, dict) or "value" not in value:
        raise FrameError("a result without a value")
    if "mode" not in value:
        return value["value"]
    from PIL import Image

    picture = Image.fromarray(value["value"])
    if picture.mode != value["mode"]:
        raise FrameError(f"a picture of mode {picture.mode}, not {value['mode']}")
    picture.info = value["info"]
    return picture
