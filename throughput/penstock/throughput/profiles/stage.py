"""What one stage of an input pipeline costs: reading, a transform, collating."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.throughput.errors import ProfileError

Kind = Literal["fetch", "transform", "collate", "opaque"]
"""``opaque``: fetching and transforming in one, told apart by blocked time alone."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """One stage, per sample.

    Attributes:
        name: as the report calls it, e.g. ``RandomResizedCrop``.
        kind: what it is.
        cpu_seconds: of one core.
        blocked_seconds: waiting for something that is no core, e.g. storage.
        bytes_out: of a sample after it; 0: unknown.
        movable: whether it may be made on another machine.
        random: whether it draws random numbers.
    """

    name: str
    kind: Kind
    cpu_seconds: float
    blocked_seconds: float = 0.0
    bytes_out: float = 0.0
    movable: bool = True
    random: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be a cost."""
        for field in ("cpu_seconds", "blocked_seconds", "bytes_out"):
            value = getattr(self, field)
            if not 0 <= value < float("inf"):
                raise ProfileError(f"stage {self.name}: {field} is {value}; it must be 0 or more")

    @property
    def seconds(self) -> float:
        """Of one worker that has a core to itself."""
        return self.cpu_seconds + self.blocked_seconds
