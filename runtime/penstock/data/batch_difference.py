"""Whether two batches, or parts of one, are the same bit by bit; and which part is not."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def first_difference(ours: Any, theirs: Any, where: str = "batch") -> str | None:
    """Which part of two batches is the first that differs, in a bit; None where none does."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs):
            return f"{where} has the keys {list(ours)!s:.100}, and {list(theirs)!s:.100} there"
        parts: Any = [(f"{where}[{key!r}]", ours[key], theirs[key]) for key in ours]
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        if len(ours) != len(theirs):
            return f"{where} has {len(ours)} parts, and {len(theirs)} there"
        pairs = enumerate(zip(ours, theirs, strict=True))
        parts = [(f"{where}[{number}]", one, other) for number, (one, other) in pairs]
    else:
        return None if _same(ours, theirs) else f"{where} is another there"
    return next(
        (said for name, one, other in parts if (said := first_difference(one, other, name))), None
    )


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if hasattr(one, "numpy") and hasattr(one, "dtype"):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        one, other = _bytes_of(one), _bytes_of(other)
    if isinstance(one, np.ndarray | np.generic):
        a, b = np.asarray(one), np.asarray(other)
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(one == other) or (one != one and other != other)


def _bytes_of(tensor: Any) -> Any:
    """A tensor's, also where NumPy has no such type (bfloat16)."""
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(sys.modules["torch"].uint8).numpy()  # it is there: this is one of its tensors
