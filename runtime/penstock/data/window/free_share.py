"""A loader whose samples are made once for several jobs, as its data workers are told of it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.data.window.free_window import FreeWindow


@dataclass(frozen=True, slots=True)
class FreeShare:
    """What data workers are told of a loader that shares, and what it lacks.

    Attributes:
        member: the loader's name in its process.
        window: of the epoch.
    """

    member: str
    window: FreeWindow
