"""Cursors: opaque to the caller, checked when they come back."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query

from penstock.wire.base import ListResource

Row = TypeVar("Row")
Item = TypeVar("Item")
Limit = Annotated[int, Query(ge=1, le=500, description="Most items of one page.")]
Continue = Annotated[
    str | None,
    Query(alias="continue", max_length=400, description="`continue` of the page before."),
]


class CursorError(Exception):
    """The cursor is not one that this service has given."""

    def __init__(self, cursor: str) -> None:
        super().__init__(
            f"continue = {cursor[:60]!r}: must be the `continue` of an earlier page, as it was"
        )


def encode(*position: float | str) -> str:
    """A cursor for the position after the last item of a page."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def page(
    rows: Sequence[Row],
    limit: int,
    read: Callable[[Row], Item],
    position: Callable[[Row], Sequence[float | str]],
) -> ListResource[Item]:
    """At most ``limit`` of the rows, and a cursor where there are more.

    Args:
        rows: one more than the limit, if there are so many.
        limit: most items.
        read: an item of a row.
        position: of a row, as the cursor has it.
    """
    shown = rows[:limit]
    following = encode(*position(shown[-1])) if len(rows) > limit else None
    return ListResource(items=[read(row) for row in shown], continue_=following)


def decode(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The position in a cursor: one value of each kind.

    Raises:
        CursorError: The cursor is not one that this service has given.
    """
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        position = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise CursorError(cursor) from error
    if not isinstance(position, list) or len(position) != len(kinds):
        raise CursorError(cursor)
    for value, kind in zip(position, kinds, strict=True):
        fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
        if not fits or isinstance(value, bool):
            raise CursorError(cursor)
        if isinstance(value, int | float) and not (math.isfinite(value) and abs(value) < 2**53):
            raise CursorError(cursor)
        if isinstance(value, str) and "\0" in value:
            raise CursorError(cursor)
    return tuple(position)
