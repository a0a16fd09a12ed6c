"""How many slots of each step every member of the present group has, as its speed changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.job.protocol import Group
from penstock.trainer.control.model.rendezvous import Rendezvous, better_shares

EVERY_SECONDS: Final = 5.0


@dataclass
class StepShares:
    """The present shares, in the order of the group's members."""

    current: tuple[int, ...] = ()
    looked_at: float = float("-inf")

    def begin(self, group: Group) -> None:
        """A new group has shares of its own."""
        self.current = group.shares

    def rebalance(self, rendezvous: Rendezvous, now: float) -> bool:
        """Give slower members less, every few seconds; whether that changed the shares."""
        group = rendezvous.group
        if group is None or now - self.looked_at < EVERY_SECONDS:
            return False
        self.looked_at = now
        if not group.shares:  # launched processes divide their work themselves
            return False
        if len(self.current) != len(group.members):  # a group that was adopted, not formed by us
            self.current = group.shares
        better = better_shares(rendezvous, self.current)
        if better is None:
            return False
        self.current = better
        return True

    def by_rank(self, group: Group | None) -> dict[int, int]:
        """How many slots of each step are every rank's now."""
        if group is None or len(self.current) != len(group.members):
            return {}
        ranks = (member.id.rank for member in group.members)
        return dict(zip(ranks, self.current, strict=True))
