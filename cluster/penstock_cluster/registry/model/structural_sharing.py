"""What two versions of an object have in common, held once.

A client that sends a whole object back, or a decoder that rebuilds it, leaves a second copy of all
that did not change. A pod has three versions or more in the history: it would weigh three times as
much, and whoever compares two of them would have to look at everything.
"""

from __future__ import annotations

from typing import Any

_MISSING = object()


def identical(left: Any, right: Any) -> bool:
    """Equality of JSON values; unlike ``==`` it tells 1 from true and from 1.0."""
    if left is right:
        return True
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is dict:
        return len(left) == len(right) and all(
            identical(item, right.get(key, _MISSING)) for key, item in left.items()
        )
    if kind is list:
        return len(left) == len(right) and all(map(identical, left, right))
    return bool(left == right)


def share(new: Any, old: Any) -> bool:
    """Put the parts of ``old`` that are identical in the places of those in ``new``.

    The value of ``new`` does not change; the result is whether the two are identical.
    """
    kind = type(new)
    if kind is not type(old):
        return False
    if kind is dict:
        same = len(new) == len(old)
        for key, item in new.items():
            before = old.get(key, _MISSING)
            if item is before:
                continue
            if share(item, before):
                new[key] = before
            else:
                same = False
        return same
    if kind is list:
        same = len(new) == len(old)
        for at, (item, before) in enumerate(zip(new, old, strict=False)):
            if item is before:
                continue
            if share(item, before):
                new[at] = before
            else:
                same = False
        return same
    return bool(new == old)
