"""Why two loaders of a group that look alike do not share: the first part of them that differs.

A dataset that holds the program's arguments has another content for each learning rate, and then
everything is made as often as there are programs. Nobody would see it: each of them shares, with
nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any, Final

from penstock.data.errors import DataError
from penstock.data.pipeline import AnyPipeline
from penstock.data.sharing.pipeline import TILE, SharedPipeline, content_digest

LOOKED_AT_BYTES: Final = 1 << 20
"""Of one part, pickled; what is larger is taken for the same: others wait meanwhile."""
MAX_DEPTH: Final = 6
MAX_PARTS: Final = 64
_MISSING: Final = object()


def unlike(one: SharedPipeline, other: SharedPipeline) -> str | None:
    """What a loader that looks like another has another of; None: it does not look like it."""
    kind, ours, theirs = _kind(one), one.pipeline, other.pipeline
    if kind != _kind(other) or one.size != other.size or one.common != other.common:
        return None
    begin = f"another program of the group has a {kind} of {one.size} samples too, with another"
    end = "and only what is the same is shared"
    if one.tile != other.tile:
        return f"{begin} batch size: those that {TILE} divides share with each other"
    for name, a, b in (
        ("dataset", ours.dataset, theirs.dataset),
        ("worker_init_fn", ours.prepare, theirs.prepare),
        ("stages", ours.stages, theirs.stages),
    ):
        if (found := _first(a, b, name, MAX_DEPTH)) is not None:
            return f"{begin} {found}, {end}"
    return f"{begin} content, {end}"


def unlike_any(one: SharedPipeline, others: Iterable[AnyPipeline]) -> str:
    """`unlike`, of the first that looks like it; empty where none does."""
    shared = (other for other in others if isinstance(other, SharedPipeline))
    return next((said for other in shared if (said := unlike(one, other)) is not None), "")


def _kind(shared: SharedPipeline) -> str:
    return type(shared.pipeline.dataset).__qualname__


def _first(one: Any, other: Any, where: str, depth: int) -> str | None:
    """The innermost first part that differs; None: none does, or it is too large to say."""
    try:
        if content_digest(one, limit=LOOKED_AT_BYTES) == content_digest(
            other, limit=LOOKED_AT_BYTES
        ):
            return None
        large = False
    except DataError:
        large = True
    if depth:
        for name, a, b in _parts(one, other, where):
            if (found := _first(a, b, name, depth - 1)) is not None:
                return found
    return None if large else where


def _parts(one: Any, other: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    """Of two values of one kind: their attributes or items, side by side."""
    if type(one).__qualname__ != type(other).__qualname__ or isinstance(one, type):
        return
    pairs: list[tuple[str, Any, Any]] = []
    ours, theirs = getattr(one, "__dict__", {}), getattr(other, "__dict__", {})
    if not isinstance(one, FunctionType):
        pairs += [(f"{where}.{name}", a, b) for name, a, b in _sides(ours, theirs)]
    if isinstance(one, dict):
        pairs += [(f"{where}[{key!r:.40}]", a, b) for key, a, b in _sides(one, other)]
    elif isinstance(one, list | tuple):
        items = list(zip(one, other, strict=False))[:MAX_PARTS]
        pairs += [(f"{where}[{number}]", a, b) for number, (a, b) in enumerate(items)]
    for name, a, b in pairs:
        if (a is _MISSING) != (b is _MISSING):
            yield name, a is _MISSING, b is _MISSING
        else:
            yield name, a, b


def _sides(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    for key in list({**one, **other})[:MAX_PARTS]:
        yield key, one.get(key, _MISSING), other.get(key, _MISSING)
