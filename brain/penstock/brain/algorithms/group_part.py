"""What a job's share group makes of the data workers that it needs: its own part of the group's.

For the algorithms that count data workers. A job that shares with nobody has the whole of its need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.brain.planning import GroupMember, History, JobDescription
from penstock.throughput.decision.share_group import divide, group_need

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class GroupPart:
    """A job's data workers within its group's; alone the two are the same.

    Attributes:
        own: that the job is to have.
        need: of the whole group.
        members: how many jobs share; 1: none but this one.
    """

    own: int
    need: int
    members: int = 1

    @property
    def others(self) -> int:
        """What the other members are to have."""
        return self.need - self.own

    @property
    def remark(self) -> str:
        """For the message of a plan; empty for a job that shares with nobody."""
        if self.members < 2:
            return ""
        return f" (of {self.need} for the {self.members} jobs of its share group)"


def member_of(history: History, job: JobDescription) -> GroupMember | None:
    """The job itself among those that it shares with; None where it shares with none."""
    return next((one for one in history.group if one.uid == job.uid), None)


def group_part(history: History, job: JobDescription, alone: float) -> GroupPart:
    """A job's part; ``alone``: data workers that it would need by itself."""
    own = member_of(history, job)
    if own is None or len(history.group) < 2:
        whole = math.ceil(alone - _ROUNDING)
        return GroupPart(whole, whole)
    rates = [one.batches_per_second for one in history.group]
    need = math.ceil(group_need(alone, own.batches_per_second, rates) - _ROUNDING)
    parts = divide(need, {one.uid: one.data_workers for one in history.group})
    return GroupPart(parts[job.uid], need, len(history.group))
