"""How a checkpoint's file begins; apart from the rest of it, so that the agent needs no PyTorch."""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"PNSTKCP1"
HEAD: Final = struct.Struct("<8sQQ")
"""Magic, bytes of the header, bytes of the tensors."""


def file_head(header: bytes, tensor_bytes: int) -> bytes:
    """What stands before the header and the tensors."""
    return HEAD.pack(MAGIC, len(header), tensor_bytes)
