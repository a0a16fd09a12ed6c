"""The functions whose results a cache keeps (`penstock.data.cache.decoded`), where there is one.

A pipeline calls them and knows of no cache: whoever installs one says here how they are found.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Kept(Protocol):
    """Those of a process."""

    def of(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function as it is to be called."""

    def loading(self, dataset: Any) -> AbstractContextManager[None]:
        """Have the loaders of a dataset be kept ones meanwhile."""


_find: list[Callable[[], Kept | None]] = []


def provide(find: Callable[[], Kept | None]) -> None:
    """``find`` has those of this process, if there are any now."""
    _find[:] = [find]


def kept_functions() -> Kept | None:
    """The functions whose results are kept in this process, if any are."""
    return _find[0]() if _find else None
