"""What one stage of an input pipeline costs: reading, a transform, collating."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from penstock.throughput.profiles.figures import MOST_BYTES, MOST_SECONDS, hold_number

Kind = Literal["fetch", "transform", "collate", "opaque"]
"""``opaque``: fetching and transforming in one, told apart by blocked time alone."""
_MOST: Final = (
    ("cpu_seconds", MOST_SECONDS),
    ("blocked_seconds", MOST_SECONDS),
    ("bytes_out", MOST_BYTES),
)


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
    """

    name: str
    kind: Kind
    cpu_seconds: float
    blocked_seconds: float = 0.0
    bytes_out: float = 0.0
    movable: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be a cost."""
        for field, most in _MOST:
            hold_number(f"stage {self.name}: {field}", getattr(self, field), 0, most)

    @property
    def seconds(self) -> float:
        """Of one worker that has a core to itself."""
        return self.cpu_seconds + self.blocked_seconds
