"""A job that is suspended: what its servers hold goes to disk, then nobody waits for anybody.

Workers begin nothing from then on. All servers are frozen once more and copied, as for any save;
the chief, though it was asked to go, stays until the checkpoint is there. Then servers that are
asked to go wait for no successor, since none is to come. A job that resumes begins at that
checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Suspension:
    """Whether a job is suspended, and how much of its model has to be on disk."""

    wanted: bool = False
    slots: int | None = None  # that the model had seen when it stood still for this

    def want(self, suspended: bool) -> None:
        """The job's spec says so; it may change its mind at any time."""
        self.wanted = suspended
        if not suspended:
            self.slots = None

    def stand(self, slots: int) -> None:
        """All servers are frozen and agree: this much is to be kept."""
        if self.wanted:
            self.slots = slots

    def give_up(self, saved: int | None) -> None:
        """Servers differ, and nobody is left to complete what is half done."""
        self.slots = saved or 0

    def is_saved(self, saved: int | None) -> bool:
        """Whether a checkpoint of so many slots is all that there is to be kept."""
        return self.slots is not None and self.slots <= (saved or 0)
