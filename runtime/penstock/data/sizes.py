"""How many bytes a batch has that a program gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MOST_ITEMS: Final = 10_000
MAX_DEPTH: Final = 8


def batch_bytes(batch: Any, depth: int = 0) -> int:
    """Of all arrays, tensors and texts in it; what is of another kind counts nothing."""
    if depth > MAX_DEPTH:
        return 0
    if isinstance(batch, bytes | str):
        return len(batch)
    if isinstance(batch, Mapping):
        return sum(batch_bytes(one, depth + 1) for one in list(batch.values())[:MOST_ITEMS])
    if isinstance(batch, list | tuple):
        return sum(batch_bytes(one, depth + 1) for one in batch[:MOST_ITEMS])
    try:
        size = getattr(batch, "nbytes", 0)
    except Exception:  # noqa: BLE001 - a property of the program's, which alone nobody asks
        return 0
    return size if isinstance(size, int) else 0
