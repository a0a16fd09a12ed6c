"""What a job says of the group that it shares batches with, in each of its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError

HEARD_SECONDS: Final = 60.0
"""A member of which nothing was heard for longer is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFigures:
    """A share group as one member sees it: tiles, the unit of sharing, and data workers.

    `made`, `taken`, `evicted` and `held_bytes` are of the data workers that are there now, of all
    members; `lag_tiles` is how far this job is behind the one that is furthest.
    """

    group: str
    members: int = 0
    data_workers: int = 0
    own_data_workers: int = 0
    milli_cpu: float = 0.0
    made: int = 0
    taken: int = 0
    evicted: int = 0
    held_bytes: int = 0
    lag_tiles: int = 0

    @property
    def shared_ratio(self) -> float:
        """Of the tiles that were taken, the part that had been made for somebody else."""
        return max(0.0, 1 - self.made / self.taken) if self.taken else 0.0

    def dump(self) -> str:
        """As JSON, for the store."""
        return _ADAPTER.dump_json(self).decode()


def load(text: str | None) -> ShareFigures | None:
    """What `dump` gave; None where it is nothing, or of a release that says something else."""
    if text is None:
        return None
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError:
        return None


_ADAPTER: Final = TypeAdapter(ShareFigures)
