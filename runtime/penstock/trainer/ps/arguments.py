"""Numbers that a program gives: checked where they come in, and named as it names them."""

from __future__ import annotations

import operator
from typing import Any


def whole(name: str, value: Any, least: int, most: int) -> int:
    """An integer of any kind, such as one of NumPy's, within bounds.

    Raises:
        ValueError: it is none, or out of bounds; names it.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}: {value!r}; an integer") from None
    if not least <= number <= most:
        raise ValueError(f"{name}: {number}; at least {least} and at most {most}")
    return number
