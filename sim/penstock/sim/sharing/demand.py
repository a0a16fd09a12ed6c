"""Data workers that a group of like jobs is given: as the Brain plans for each of its members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.base.enums import Strategy
from penstock.brain.algorithms.group_part import group_part
from penstock.brain.planning import GroupMember, History, JobDescription
from penstock.sim.report.goals import Goal, at_most

MEMBERS: Final = (1, 2, 4, 8, 16, 64)
JUDGED: Final = 8
RATE: Final = 1.92
"""Batches a second that a job takes: M4 of tf.data service."""
WORKER_RATE: Final = 0.06
"""That a data worker makes: 32 feed a job."""
_GOAL: Final = 1.1


@dataclass(frozen=True, slots=True)
class DemandRow:
    """Data workers of a group: as planned, what the sum of its members would be, and a member's."""

    members: int
    planned: int
    summed: int
    most_of_one: int


def demands() -> list[DemandRow]:
    """Groups of identical jobs."""
    [alone] = _parts(1)
    rows = []
    for members in MEMBERS:
        parts = _parts(members)
        rows.append(DemandRow(members, sum(parts), members * alone, max(parts)))
    return rows


def _parts(members: int) -> list[int]:
    """What each of so many jobs is planned, one after the other, none of which has any yet."""
    group = tuple(
        GroupMember(uid=f"job-{one:02}", batches_per_second=RATE) for one in range(members)
    )
    history = History(now_seconds=0.0, group=group)
    jobs = [JobDescription(uid=one.uid, strategy=Strategy.LOCAL, roles={}) for one in group]
    return [group_part(history, job, RATE / WORKER_RATE).own for job in jobs]


def goals(rows: list[DemandRow]) -> list[Goal]:
    """Eight ask for no more than one."""
    by_members = {row.members: row.planned for row in rows}
    ratio = by_members[JUDGED] / by_members[1]
    return [at_most(f"demand of {JUDGED} like members by that of one", _GOAL, ratio)]
